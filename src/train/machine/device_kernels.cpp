// Records a trace of GPU kernels with libtorch's profiler.
#include "train/machine/device_kernels.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "base/format.h"
#include "base/log.h"

namespace lockstep::train {
namespace {

namespace profiler = torch::autograd::profiler;
namespace settings = torch::profiler::impl;

constexpr size_t kTold = 15;  // kernels listed in the table
constexpr size_t kNameLength = 90;

struct Sum {
  uint64_t nanoseconds = 0;
  int64_t launches = 0;
};

/// Returns the number of nanoseconds covered by at least one span.
uint64_t covered(std::vector<std::pair<uint64_t, uint64_t>> spans) {
  std::ranges::sort(spans);
  uint64_t sum = 0, until = 0;
  for (const auto& [begin, end] : spans) {
    sum += end > until ? end - std::max(begin, until) : 0;
    until = std::max(until, end);
  }
  return sum;
}

std::string table_of(const std::vector<profiler::KinetoEvent>& events) {
  std::map<std::string, Sum> sums;
  std::vector<std::pair<uint64_t, uint64_t>> spans;
  uint64_t first = UINT64_MAX, last = 0;
  for (const profiler::KinetoEvent& event : events) {
    if (event.deviceType() != c10::DeviceType::CUDA) {
      continue;
    }
    Sum& sum = sums[event.name()];
    sum.nanoseconds += event.durationNs();
    ++sum.launches;
    spans.emplace_back(event.startNs(), event.endNs());
    first = std::min(first, event.startNs());
    last = std::max(last, event.endNs());
  }
  if (spans.empty()) {
    return {};
  }
  std::vector<std::pair<std::string, Sum>> rows(sums.begin(), sums.end());
  std::ranges::sort(rows, [](const auto& a, const auto& b) {
    return a.second.nanoseconds > b.second.nanoseconds;
  });
  const auto milliseconds = [](uint64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1e6;
  };
  const double span = milliseconds(last - first);
  const size_t launches = spans.size();
  std::string text = fmt::format(
      "the GPU was busy for {:.1f}% of {:.1f} ms, with {} launches\n{:>9} {:>8}  {:>5}\n",
      100 * milliseconds(covered(std::move(spans))) / span,
      span,
      launches,
      "ms",
      "launches",
      "share");
  for (size_t i = 0; i < std::min(kTold, rows.size()); ++i) {
    const auto& [name, sum] = rows[i];
    const double took = milliseconds(sum.nanoseconds);
    text += fmt::format(
        "{:>9.2f} {:>8}  {:>4.1f}%  {}\n",
        took,
        sum.launches,
        100 * took / span,
        name.substr(name.starts_with("void ") ? 5 : 0, kNameLength));
  }
  if (rows.size() > kTold) {
    text += fmt::format("          and {} others\n", rows.size() - kTold);
  }
  return text;
}

}  // namespace

DeviceKernels::DeviceKernels(c10::Device device) : device_(device) {
  if (!device.is_cuda()) {
    return;
  }
  try {
    const settings::ProfilerConfig config(settings::ProfilerState::KINETO);
    const std::set<settings::ActivityType> activities{settings::ActivityType::CUDA};
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    is_recording_ = true;
  } catch (const std::exception& error) {
    log_warning("GPU kernels are not traced: {}", error.what());
  }
}

DeviceKernels::~DeviceKernels() {
  if (is_recording_) {
    profiler::disableProfiler();
  }
}

std::string DeviceKernels::write(const std::filesystem::path& file) {
  if (!std::exchange(is_recording_, false)) {
    return {};
  }
  // Without this, kernels that are still running (such as those of the update) would be missing in
  // the trace.
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
  result->save(file.string());
  return table_of(result->events());
}

}  // namespace lockstep::train
