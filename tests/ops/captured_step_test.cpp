// On a CPU a captured step calls its body; graphs need a GPU.
#include "ops/captured_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::ops {
namespace captured_step_test {

TEST(CapturedStep, IsItsBodyOnTheHost) {
  const at::Tensor weight = at::ones({3}).set_requires_grad(true), input = at::zeros({3});
  CapturedStep step(at::kCPU, [&] {
    weight.mutable_grad().reset();
    (weight * input).sum().backward();
    const at::NoGradGuard no_grad;
    at::Tensor(weight).sub_(weight.grad(), 0.5);
  });
  for (int i = 1; i <= 6; ++i) {
    input.fill_(i);  // inputs are copied into a tensor at a fixed address
    step.run();
  }
  EXPECT_FALSE(step.is_captured());
  EXPECT_TRUE(at::equal(weight, at::full({3}, 1 - 0.5 * 21)));
}

}  // namespace captured_step_test
}  // namespace lockstep::ops
