// AdamW on flat buffers: threaded CPU loops, the CUDA kernel, and the ATen reference.
#include "ops/adamw.h"

#include <cmath>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/adamw_kernel.h"
#include "ops/cpu/host_loops.h"
#include "ops/cuda_loops.h"
#include "ops/host_copies.h"

namespace lockstep::ops {
namespace {

/// Minimum number of elements per thread; they fit in a core's level-2 cache. With fewer elements,
/// starting another thread costs more than it saves.
constexpr int64_t kGrain = 32768;

bool has_master(const AdamWBuffers& buffers) {
  return buffers.master.defined() && !buffers.master.is_same(buffers.parameter);
}

/// Returns the float32 tensor that the step updates.
const at::Tensor& weight_of(const AdamWBuffers& buffers) {
  return has_master(buffers) ? buffers.master : buffers.parameter;
}

void check(const AdamWBuffers& buffers) {
  const auto fail = [](const std::string& message) {
    throw Error(ErrorKind::kInternal, "AdamW: " + message);
  };
  const int64_t count = buffers.parameter.defined() ? buffers.parameter.numel() : -1;
  const auto check_one = [&](const char* name, const at::Tensor& tensor, bool may_be_bfloat16) {
    if (!tensor.defined()) {
      fail(fmt::format("{} is missing", name));
    }
    if (tensor.numel() != count || !tensor.is_contiguous()) {
      fail(fmt::format(
          "{} is not a contiguous run of {} elements (it has {})", name, count, tensor.numel()));
    }
    if (tensor.device() != buffers.parameter.device()) {
      fail(fmt::format(
          "{} is on {}, the parameter on {}",
          name,
          tensor.device().str(),
          buffers.parameter.device().str()));
    }
    const at::ScalarType type = tensor.scalar_type();
    if (type != at::kFloat && !(may_be_bfloat16 && type == at::kBFloat16)) {
      fail(fmt::format("{} is of type {}", name, c10::toString(type)));
    }
  };
  check_one("parameter", buffers.parameter, true);
  check_one("gradient", buffers.gradient, true);
  check_one("exp_avg", buffers.exp_avg, false);
  check_one("exp_avg_sq", buffers.exp_avg_sq, false);
  if (has_master(buffers)) {
    check_one("master", buffers.master, false);
    if (buffers.parameter.scalar_type() == at::kFloat) {
      fail("a float32 parameter has no separate master");
    }
  } else if (buffers.parameter.scalar_type() != at::kFloat) {
    fail("a bfloat16 parameter needs a float32 master");
  }
}

void check(const AdamWStep& step) {
  if (step.step < 1) {
    throw Error(
        ErrorKind::kInternal, fmt::format("AdamW: step must be at least 1, got {}", step.step));
  }
}

kernel::AdamWFactors factors_of(const AdamWStep& step) {
  const auto t = static_cast<double>(step.step);
  return {
      .scale = static_cast<float>(step.gradient_scale),
      .keep = static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
      .beta1 = static_cast<float>(step.beta1),
      .new1 = static_cast<float>(1.0 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .new2 = static_cast<float>(1.0 - step.beta2),
      .rate = static_cast<float>(step.learning_rate / (1.0 - std::pow(step.beta1, t))),
      .root_factor = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(step.beta2, t))),
      .epsilon = static_cast<float>(step.epsilon)};
}

template <class Gradient>
void run_kernel(
    const kernel::AdamWFactors& factors, const AdamWBuffers& buffers, const Gradient* gradient) {
  const kernel::AdamWArrays<Gradient> arrays{
      .gradient = gradient,
      .weight = weight_of(buffers).data_ptr<float>(),
      .exp_avg = buffers.exp_avg.data_ptr<float>(),
      .exp_avg_sq = buffers.exp_avg_sq.data_ptr<float>(),
      .low = has_master(buffers) ? static_cast<kernel::Bfloat16*>(buffers.parameter.data_ptr())
                                 : nullptr};
  at::parallel_for(0, buffers.parameter.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernel::adamw(factors, end - begin, arrays.from(begin));
  });
}

void run_kernel(const kernel::AdamWFactors& factors, const AdamWBuffers& buffers) {
  if (buffers.gradient.scalar_type() == at::kFloat) {
    run_kernel(factors, buffers, buffers.gradient.const_data_ptr<float>());
  } else {
    run_kernel(
        factors, buffers, static_cast<const kernel::Bfloat16*>(buffers.gradient.const_data_ptr()));
  }
}

/// AdamW step with ATen operations, on any device.
void step_by_tensors(const AdamWBuffers& buffers, const at::Tensor& numbers) {
  const c10::NoGradGuard no_grad;
  const auto number = [&](int64_t index) { return numbers[index]; };
  at::Tensor weight = weight_of(buffers).detach();
  at::Tensor m = buffers.exp_avg.detach(), v = buffers.exp_avg_sq.detach();
  const at::Tensor g = buffers.gradient.detach().to(at::kFloat).mul(number(0));
  m.mul_(number(2)).add_(g * number(3));
  v.mul_(number(4)).add_(g.square().mul_(number(5)));
  const at::Tensor below = v.sqrt().mul_(number(7)).add_(number(8));
  weight.mul_(number(1)).sub_(m.div(below).mul_(number(6)));
  if (has_master(buffers)) {
    buffers.parameter.detach().copy_(weight);
  }
}

}  // namespace

at::Tensor adamw_numbers(const AdamWStep& step) {
  check(step);
  const kernel::AdamWFactors f = factors_of(step);
  return at::tensor(
      {f.scale, f.keep, f.beta1, f.new1, f.beta2, f.new2, f.rate, f.root_factor, f.epsilon},
      at::kFloat);
}

void adamw_step_by(const AdamWBuffers& buffers, const at::Tensor& numbers) {
  check(buffers);
  if (numbers.numel() != kAdamWNumbers || numbers.scalar_type() != at::kFloat ||
      !numbers.is_contiguous() || numbers.device() != buffers.parameter.device()) {
    throw Error(ErrorKind::kInternal, "AdamW: the factors are not from adamw_numbers");
  }
  if (buffers.parameter.numel() == 0) {
    return;
  }
  if (has_host_loops(numbers)) {
    const auto* n = numbers.const_data_ptr<float>();
    run_kernel({n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]}, buffers);
    return;
  }
  if (buffers.parameter.is_cuda() && cuda_loops().adamw != nullptr) {
    cuda_loops().adamw(buffers, numbers);
  } else {
    step_by_tensors(buffers, numbers);
  }
}

void adamw_step(const AdamWBuffers& buffers, const AdamWStep& step) {
  check(buffers);
  check(step);
  if (!has_host_loops(buffers.parameter)) {
    adamw_step_by(buffers, to_device(adamw_numbers(step), buffers.parameter.device()));
  } else if (buffers.parameter.numel() > 0) {
    run_kernel(factors_of(step), buffers);
  }
}

void adamw_step_reference(const AdamWBuffers& buffers, const AdamWStep& step) {
  check(buffers);
  check(step);
  const c10::NoGradGuard no_grad;
  const auto t = static_cast<double>(step.step);
  at::Tensor weight = weight_of(buffers).detach();
  at::Tensor m = buffers.exp_avg.detach();
  at::Tensor v = buffers.exp_avg_sq.detach();
  const at::Tensor g = buffers.gradient.detach().to(at::kFloat).mul(step.gradient_scale);
  weight.mul_(1.0 - step.learning_rate * step.weight_decay);
  m.mul_(step.beta1).add_(g, 1.0 - step.beta1);
  v.mul_(step.beta2).addcmul_(g, g, 1.0 - step.beta2);
  const at::Tensor below =
      v.sqrt().div_(std::sqrt(1.0 - std::pow(step.beta2, t))).add_(step.epsilon);
  weight.addcdiv_(m, below, -step.learning_rate / (1.0 - std::pow(step.beta1, t)));
  if (has_master(buffers)) {
    buffers.parameter.detach().copy_(weight);
  }
}

}  // namespace lockstep::ops
