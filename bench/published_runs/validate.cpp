#include "published_runs/validate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/format.h"
#include "schedule/greedy.h"

namespace lockstep::plan {

namespace {

constexpr int kOneIn = 5;
constexpr int kPlace = 2;

std::optional<double> metric(const Run& run, std::string_view name) {
  for (const Run::Metric& metric : run.metrics) {
    if (metric.name == name) {
      return metric.value;
    }
  }
  return std::nullopt;
}

std::string describe(const Prepared& p, const Run& run) {
  return fmt::format(
      "{}, {}, {} x {}",
      p.system.empty() ? run.cell("system") : p.system,
      run.cell("model"),
      run.cell("n_gpus"),
      run.cell("gpu"));
}

// Peaks that the program itself reports leave the driver's memory out.
bool reported_by_program(const Run& run) {
  return std::any_of(run.metrics.begin(), run.metrics.end(), [](const Run::Metric& m) {
    return m.name == "peak_mem";
  });
}

// The published rates are of equal stages with the times of one stage, and optimizer steps that are
// not synchronised.
double even_bubble(const Job& job, const StageProfile& profile) {
  if (job.greedy_held > 0) {
    const schedule::Durations durations{
        std::vector<schedule::StageTimes>(job.mesh.pipeline, profile.stage),
        std::vector<double>(job.mesh.pipeline, profile.message),
        {}};
    return schedule::time_schedule(
               schedule::make_greedy(
                   static_cast<int>(job.micro_batches()),
                   durations,
                   {.held = job.greedy_held, .weight_share = deferred_share(job)}),
               durations)
        .span_bubble();
  }
  const schedule::Schedule schedule = schedule::make_schedule(
      {.kind = job.schedule,
       .ranks = job.mesh.pipeline,
       .micro_batches = static_cast<int>(job.micro_batches()),
       .virtual_stages = job.schedule == schedule::Kind::kInterleaved ? job.virtual_stages : 0});
  return schedule::time_schedule(
             schedule, schedule::even_durations(schedule, profile.stage, profile.message))
      .span_bubble();
}

void compare(const Run& run, Comparison& comparison) {
  const Prepared& prepared = comparison.prepared;
  comparison.rows = run.rows;
  comparison.measured_seconds = measured_seconds(run, prepared.job);
  comparison.measured_bytes = measured_bytes(run);
  comparison.measured_bubble = metric(run, "bubble_rate");
  comparison.step = simulate(prepared.job, cluster_of(prepared));
  comparison.seconds = comparison.step.step_seconds * prepared.slowdown;
  if (comparison.measured_bubble) {
    const StageProfile profile = stage_profile(run);
    comparison.bubble = even_bubble(prepared.job, profile);
    comparison.bubble_times = profile.from;
  }
  Memory memory = largest(estimate_memory(prepared.job)).peak;
  comparison.fits = memory.least() <= usable_bytes(prepared.device);
  if (reported_by_program(run)) {
    memory.context = 0;
  }
  comparison.bytes = memory.total();
  for (const Run::Metric& m : run.metrics) {
    if (m.name.rfind("fits", 0) == 0) {
      comparison.measured_fits = m.text != "OOM";
    }
  }
  if (comparison.measured_seconds || comparison.measured_bytes) {
    comparison.measured_fits = true;
  }
}

}  // namespace

std::optional<double> Comparison::time_error() const {
  return measured_seconds ? std::optional(seconds / *measured_seconds - 1) : std::nullopt;
}

std::optional<double> Comparison::memory_error() const {
  return measured_bytes ? std::optional(bytes / *measured_bytes - 1) : std::nullopt;
}

Cluster cluster_of(const Prepared& prepared) {
  Cluster cluster = uniform_cluster(prepared.device, prepared.job.mesh.ranks());
  for (NodeGroup& group : cluster.groups) {
    group.network_bandwidth = prepared.network_bandwidth;
  }
  return cluster;
}

std::string sweep_of(const Prepared& prepared) {
  return prepared.model + ", " + prepared.device.name +
         (prepared.conditions.empty() ? "" : ", " + prepared.conditions);
}

std::vector<bool> lent_to_calibration(const std::vector<Run>& runs) {
  std::vector<bool> lent(runs.size(), false);
  std::map<std::string, int> seen;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Prepared prepared = prepare(runs[i]);
    if (!prepared.skipped.empty() || !prepared.contradiction.empty() || prepared.is_mixture ||
        !measured_seconds(runs[i], prepared.job)) {
      continue;
    }
    lent[i] = seen[prepared.system + "|" + prepared.device.name]++ % kOneIn == kPlace;
  }
  return lent;
}

Validation validate(const std::vector<Run>& runs) {
  Validation result;
  const Calibration& table = calibration();
  const std::set<std::string> lenders(table.lent.begin(), table.lent.end());
  const std::set<std::string> systems(table.systems.begin(), table.systems.end());
  for (size_t i = 0; i < runs.size(); ++i) {
    Comparison comparison;
    comparison.prepared = prepare(runs[i]);
    if (!comparison.prepared.skipped.empty()) {
      result.skipped.push_back(
          {describe(comparison.prepared, runs[i]), comparison.prepared.skipped, runs[i].rows});
      continue;
    }
    compare(runs[i], comparison);
    comparison.lent = lenders.count(runs[i].fingerprint()) != 0;
    comparison.system_lent = systems.count(comparison.prepared.system) != 0;
    if (comparison.measured_seconds || comparison.measured_bytes || comparison.measured_bubble ||
        comparison.measured_fits) {
      result.comparisons.push_back(std::move(comparison));
    } else {
      result.skipped.push_back(
          {describe(comparison.prepared, runs[i]), "no metric that a step tells", runs[i].rows});
    }
  }
  return result;
}

std::optional<double> kendall_tau(
    const std::vector<double>& predicted, const std::vector<double>& measured, double noise) {
  double agree = 0;
  double pairs = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (std::abs(measured[i] / measured[j] - 1) < noise) {
        continue;
      }
      ++pairs;
      const double sign = (measured[i] - measured[j]) * (predicted[i] - predicted[j]);
      agree += sign > 0 ? 1 : sign < 0 ? -1 : 0;
    }
  }
  return pairs >= 3 ? std::optional(agree / pairs) : std::nullopt;
}

}  // namespace lockstep::plan
