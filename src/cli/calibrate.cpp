#include "cli/calibrate.h"

#include <algorithm>
#include <chrono>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/parse.h"
#include "plan/validate.h"

namespace lockstep::cli {

namespace {

struct Options {
  std::string fit, write;
  std::vector<int64_t> sizes{256, 512, 1024, 2048};
  double seconds = 0.3;
};

// The rate of the best of many runs within `seconds`: what the machine can, not what else it did
// meanwhile.
template <class Body>
double best_seconds(double seconds, const Body& body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  body();
  do {
    const auto start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() < until);
  return best;
}

double product_rate(int64_t size, at::ScalarType type, double seconds) {
  const at::Tensor a = at::ones({size, size}, type);
  const at::Tensor b = at::ones({size, size}, type);
  at::Tensor out = at::empty({size, size}, type);
  const double time = best_seconds(seconds, [&] { at::mm_out(out, a, b); });
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) /
         time;
}

double copy_rate(double seconds) {
  const at::Tensor from = at::ones({int64_t{1} << 25}, at::kFloat);  // 128 MiB: past every cache
  at::Tensor to = at::empty_like(from);
  const double bytes = 2.0 * static_cast<double>(from.nbytes());
  return bytes / best_seconds(seconds, [&] { to.copy_(from); });
}

int fit(const Options& options) {
  const plan::Calibration calibration = plan::fit_calibration(
      plan::read_runs(options.fit),
      [](const std::string& line) { std::cout << line << std::endl; });
  const std::string text = plan::calibration_source(calibration);
  if (options.write.empty()) {
    std::cout << text;
  } else {
    write_file_atomically(options.write, text, ErrorKind::kEnvironment);
  }
  return 0;
}

}  // namespace

int run_calibrate(std::vector<std::string> arguments) {
  Options options;
  CLI::App app(
      "Measures this machine's matrix products and memory, and writes a cluster file for `lockstep "
      "plan --cluster`.",
      "lockstep calibrate");
  app.add_option("--write", options.write, "The file to write");
  app.add_option("--sizes", options.sizes, "Sizes of square products")->delimiter(',');
  app.add_option("--seconds", options.seconds, "Time for each measurement")->capture_default_str();
  app.add_option(
      "--fit", options.fit, "Fit the cost model to the published runs of this CSV file instead");
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  if (!options.fit.empty()) {
    return fit(options);
  }
  double best32 = 0;
  double best16 = 0;
  std::cout << fmt::format("matrix products, {} threads\n", at::get_num_threads());
  for (const int64_t size : options.sizes) {
    if (size < 16 || size > 16384) {
      throw Error(ErrorKind::kConfig, fmt::format("--sizes {}: from 16 to 16384", size));
    }
    const double rate32 = product_rate(size, at::kFloat, options.seconds);
    const double rate16 = product_rate(size, at::kBFloat16, options.seconds);
    best32 = std::max(best32, rate32);
    best16 = std::max(best16, rate16);
    std::cout << fmt::format(
        "  {:>5}: float32 {:8.1f} GFLOP/s, bfloat16 {:8.1f} GFLOP/s\n",
        size,
        rate32 / 1e9,
        rate16 / 1e9);
  }
  const double bandwidth = copy_rate(options.seconds);
  std::cout << fmt::format("memory: {:.1f} GB/s read and written\n", bandwidth / 1e9);
  const std::string text = fmt::format(
      "# Measured by `lockstep calibrate`, {} threads. Links are the library's: measure them with "
      "two ranks.\n"
      "nodes:\n  - count: 1\n    devices: 2\n    device:\n      like: cpu\n      name: "
      "this-machine\n      tflops16: {:.4f}\n"
      "      tflops32: {:.4f}\n      bandwidth_gb_s: {:.2f}\n      matrix_efficiency: 1\n      "
      "memory_efficiency: 1\n",
      at::get_num_threads(),
      best16 / 1e12,
      best32 / 1e12,
      bandwidth / 1e9);
  if (options.write.empty()) {
    std::cout << text;
  } else {
    write_file_atomically(options.write, text, ErrorKind::kEnvironment);
    std::cout << "written: " << options.write << "\n";
  }
  return 0;
}

}  // namespace lockstep::cli
