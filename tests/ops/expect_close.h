// Comparison of an operation's values and gradients with a float64 reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/testing.h"

namespace lockstep::ops {

inline double limit_of(at::ScalarType type) {
  return type == at::kFloat ? 3e-6 : 1e-2;
}

/// Returns the value and the gradients of `function` at `inputs`, for a fixed gradient of the
/// result.
inline std::vector<at::Tensor> value_and_gradients(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs,
    at::ScalarType type) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(leaf(input, type));
  }
  const at::Tensor y = function(leaves);
  // Rounded to bfloat16, so that all types see the same gradient.
  y.backward(random(y.sizes(), 99).to(at::kBFloat16).to(y.scalar_type()));
  std::vector<at::Tensor> results = {y.detach()};
  for (const at::Tensor& input : leaves) {
    results.push_back(input.grad());
  }
  return results;
}

inline void expect_close(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& exact,
    std::vector<at::Tensor> inputs,
    const std::string& what,
    double bfloat16_limit = limit_of(at::kBFloat16)) {
  for (at::Tensor& input : inputs) {
    input = input.to(at::kBFloat16).to(at::kFloat);
  }
  const auto wanted = value_and_gradients(exact, inputs, at::kDouble);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto got = value_and_gradients(function, inputs, type);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(error(got[i], wanted[i]), type == at::kFloat ? limit_of(type) : bfloat16_limit)
          << what << " " << c10::toString(type) << " result " << i;
    }
  }
}

}  // namespace lockstep::ops
