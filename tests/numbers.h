// The rule for what is computed in float32 twice, in another order, by other ranks or by another
// library: losses within 1e-5, and values within 1e-5 of their tensor's largest. Single elements
// are no measure: one that is nearly nothing is the difference of large ones, and rounds otherwise
// on every processor.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::numbers {

inline constexpr double kRule = 1e-5;
/// Next to a model's largest gradient: below it a gradient is zero but for rounding, as
/// `lockstep verify` has it.
inline constexpr double kFloor = 1e-3;

inline double largest(const at::Tensor& values) {
  return values.numel() == 0 ? 0 : values.abs().max().to(at::kDouble).item<double>();
}

/// The largest difference, relative to the largest element wanted, or to `floor` where that is
/// more; infinite where the sizes differ.
inline double error(const at::Tensor& got, const at::Tensor& wanted, double floor = 0) {
  if (got.sizes() != wanted.sizes()) {
    return INFINITY;
  }
  if (wanted.numel() == 0) {
    return 0;
  }
  const at::Tensor exact = wanted.detach().to(at::kDouble);
  const double scale = std::max(largest(exact), floor);
  return largest(got.detach().to(at::kDouble) - exact) / (scale > 0 ? scale : 1);
}

inline void expect_loss(
    double got, double wanted, const std::string& what, double tolerance = kRule) {
  EXPECT_NEAR(got, wanted, tolerance) << what << ": the loss";
}

inline void expect_values(
    const at::Tensor& got,
    const at::Tensor& wanted,
    const std::string& what,
    double tolerance = kRule,
    double floor = 0) {
  EXPECT_LE(error(got, wanted, floor), tolerance)
      << what << ", of at most " << largest(wanted) << " in " << wanted.sizes();
}

/// All gradients of a model, by name.
inline void expect_gradients(
    const std::map<std::string, at::Tensor>& got,
    const std::map<std::string, at::Tensor>& wanted,
    const std::string& what,
    double tolerance = kRule) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  double most = 0;
  for (const auto& [name, gradient] : wanted) {
    most = std::max(most, largest(gradient));
  }
  for (const auto& [name, gradient] : wanted) {
    ASSERT_TRUE(got.contains(name)) << what << ": " << name;
    expect_values(
        got.at(name), gradient, what + ": the gradient of " + name, tolerance, kFloor * most);
  }
}

}  // namespace lockstep::numbers
