#include "train/machine/peak.h"

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>

#include "base/clock.h"
#include "ops/products.h"

namespace lockstep::train {
namespace {

constexpr double kSeconds = 0.04;

}  // namespace

double measure_peak(comm::Communicator& communicator, c10::Device device, c10::ScalarType type) {
  const at::NoGradGuard no_grad;
  const int64_t n = device.is_cpu() ? 768 : 8192;
  // Of numbers as they are in training: products of ones cost less power, and go faster.
  const at::Tensor a = at::randn({n, n}, at::TensorOptions(device).dtype(type));
  const at::Tensor b = at::randn_like(a);
  const at::Tensor c = ops::matrix_product(a, b);  // the first call sets the library up
  communicator.barrier();
  double best = 0;
  for (const double begin = seconds_now(); seconds_now() - begin < kSeconds;) {
    const double start = seconds_now();
    ops::write_matrix_product(c, a, b);
    if (!device.is_cpu()) {
      c[0][0].item<float>();  // waits for the device
    }
    const double operations =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    best = std::max(best, operations / (seconds_now() - start));
  }
  at::Tensor sum = at::full({1}, best, at::kDouble);
  communicator.all_reduce(sum).wait();
  return sum.item<double>();
}

}  // namespace lockstep::train
