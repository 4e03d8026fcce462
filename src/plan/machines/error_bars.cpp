// Implements error bars of time and memory predictions.
#include "plan/machines/error_bars.h"

#include <algorithm>

#include "base/format.h"
#include "plan/machines/cluster.h"

namespace lockstep::plan {

namespace {

// Measured by `make plan-machine`: 90 % of settings have a smaller error.
constexpr double kMemoryOnCpus = 0.05;

bool all_measured(const Cluster& cluster) {
  return std::ranges::all_of(cluster.groups, [](const NodeGroup& group) {
    return group.device.measured && group.device.time_error > 0;
  });
}

}  // namespace

ErrorBars time_error_bars(const Cluster& cluster) {
  ErrorBars bars = published_error_bars().time;
  if (all_measured(cluster)) {
    double error = 0;
    for (const NodeGroup& group : cluster.groups) {
      error = std::max(error, group.device.time_error);
    }
    bars = {1 / (1 + error), 1 + error};
  }
  return bars;
}

ErrorBars memory_error_bars(const Cluster& cluster) {
  const bool all_cpus = std::ranges::all_of(
      cluster.groups, [](const NodeGroup& group) { return group.device.is_cpu; });
  return all_cpus ? ErrorBars{1 - kMemoryOnCpus, 1 + kMemoryOnCpus} : published_error_bars().memory;
}

double order_bar(const Cluster& cluster) {
  return all_measured(cluster) ? 1 : published_error_bars().order;
}

std::string text_of(const ErrorBars& bars) {
  return fmt::format("-{:.0f}% +{:.0f}%", 100 * (1 - bars.least), 100 * (bars.most - 1));
}

ErrorBars inverse_of(const ErrorBars& bars) {
  return {1 / bars.most, 1 / bars.least};
}

}  // namespace lockstep::plan
