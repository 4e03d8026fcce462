// Measures the peak rate of matrix products.
#include "train/machine/peak.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <ATen/ATen.h>

#include "base/clock.h"
#include "ops/products.h"

namespace lockstep::train {
double usual_rate(double operations, std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return operations / *middle;
}

double measure_peak(comm::Communicator& communicator, c10::Device device, c10::ScalarType type) {
  const at::NoGradGuard no_grad;
  const int64_t n = device.is_cpu() ? 768 : 8192;
  const int products = device.is_cpu() ? 1 : 4;  // products per device synchronization
  const double duration =
      device.is_cpu() ? 0.04 : 0.2;  // it takes some time until a GPU's clock is stable
  // Random values, as in training. Products of constants draw less power and run faster.
  const at::Tensor a = at::randn({n, n}, at::TensorOptions(device).dtype(type));
  const at::Tensor b = at::randn_like(a);
  const at::Tensor c = at::empty_like(a);
  const auto run = [&] {
    for (int i = 0; i < products; ++i) {
      ops::write_matrix_product(c, a, b);
    }
    if (!device.is_cpu()) {
      c[0][0].item<float>();  // synchronizes with the device
    }
  };
  run();  // initializes the library
  communicator.barrier();
  std::vector<double> seconds;
  for (const double begin = seconds_now(); seconds_now() - begin < duration;) {
    const double start = seconds_now();
    run();
    seconds.push_back(seconds_now() - start);
  }
  const auto size = static_cast<double>(n);
  const double operations = 2.0 * products * size * size * size;
  // A GPU's clock rate drops over time, so use the median. On a CPU, other processes may briefly
  // use a core, so use the fastest run.
  const double rate = device.is_cpu()
                          ? operations / *std::min_element(seconds.begin(), seconds.end())
                          : usual_rate(operations, std::move(seconds));
  at::Tensor sum = at::full({1}, rate, at::kDouble);
  communicator.all_reduce(sum).wait();
  return sum.item<double>();
}

}  // namespace lockstep::train
