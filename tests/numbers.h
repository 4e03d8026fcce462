// Tolerances for float32 results that different ranks or libraries compute in a different order:
// losses within 1e-5, and values within 1e-5 of the largest value of their tensor. Elements are not
// compared relative to themselves, because a value near zero is a difference of large values and
// rounds differently on every processor.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::numbers {

inline constexpr double kRule = 1e-5;
/// Relative to a model's largest gradient. A gradient below it counts as rounding error, as in
/// `lockstep verify`.
inline constexpr double kFloor = 1e-3;

inline double largest(const at::Tensor& values) {
  return values.numel() == 0 ? 0 : values.abs().max().to(at::kDouble).item<double>();
}

/// Returns the largest difference relative to the largest expected element, or to `floor` if that
/// is larger. Infinite if the sizes differ.
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

/// Compares all gradients of a model, by name.
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
