// Tests monotonicity: more or better hardware is never worse.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "plan/search.h"

namespace lockstep::plan {
namespace properties_test {

constexpr double kMayRound = 1 + 1e-9;

std::vector<Job> some_jobs() {
  std::vector<Job> jobs;
  Job job;
  job.model = model::preset("gpt2-medium");
  job.sequence = 2048;
  job.global_batch = 64;
  job.micro_batch = 2;
  for (const int zero : {0, 1, 3}) {
    for (const int pipeline : {1, 4}) {
      for (const int tensor : {1, 4}) {
        for (const int context : {1, 2}) {
          job.zero_stage = zero;
          job.mesh = {.pipeline = pipeline, .data = 4, .context = context, .tensor = tensor};
          job.sequence_parallel = tensor > 1;
          jobs.push_back(job);
          job.offload = Offload::kOptimizer;
          job.schedule = schedule::Kind::kZbH1;
          jobs.push_back(job);
          job.offload = Offload::kNone;
          job.schedule = schedule::Kind::kOneFOneB;
        }
      }
    }
  }
  return jobs;
}

Cluster some_cluster() {
  return parse_cluster(
      "nodes:\n  - {count: 7, devices: 8, device: a100-80gb}\n"
      "  - {count: 9, devices: 8, device: h100-80gb, network_gb_s: 30}\n",
      "c");
}

TEST(Properties, ABetterMachineIsNeverSlower) {
  using Improve = void (*)(NodeGroup&);
  const std::vector<std::pair<const char*, Improve>> improvements{
      {"network", [](NodeGroup& g) { g.network_bandwidth *= 1.5; }},
      {"links", [](NodeGroup& g) { g.peer_bandwidth *= 1.5; }},
      {"memory", [](NodeGroup& g) { g.device.memory_bandwidth *= 1.5; }},
      {"host", [](NodeGroup& g) { g.device.host_bandwidth *= 1.5; }},
      {"products", [](NodeGroup& g) { g.device.flops16 *= 1.5; }},
      {"kernels", [](NodeGroup& g) { g.device.efficiency.matrix16 *= 1.1; }}};
  const Cluster cluster = some_cluster();
  for (const Job& job : some_jobs()) {
    const double now = simulate(job, cluster).step_seconds;
    for (const auto& [what, improve] : improvements) {
      Cluster better = cluster;
      std::for_each(better.groups.begin(), better.groups.end(), improve);
      EXPECT_LE(simulate(job, better).step_seconds, now * kMayRound) << what << plan_line(job);
    }
    Cluster nearer = cluster;
    nearer.physics.network_latency /= 2;
    nearer.physics.link_latency /= 2;
    EXPECT_LE(simulate(job, nearer).step_seconds, now * kMayRound) << plan_line(job);
  }
}

TEST(Properties, MoreMemoryIsNeverAWorsePlan) {
  SearchRequest request;
  request.base.model = model::preset("gpt2-large");
  request.base.global_batch = 64;
  double before = std::numeric_limits<double>::infinity();
  for (const double gigabytes : {8.0, 12.0, 16.0, 24.0, 40.0, 80.0}) {
    Device device = find_device("a100-80gb");
    device.memory_bytes = gigabytes * 1e9;
    request.cluster = uniform_cluster(device, 16);
    const SearchResult found = search(request);
    const double now = found.best.empty() ? before : found.best.front().step.step_seconds;
    EXPECT_LE(now, before * kMayRound) << gigabytes;
    before = now;
  }
}

TEST(Properties, NoPlanIsBetterThanThePeak) {
  for (const char* device : {"h100-80gb", "a100-40gb", "v100-16gb", "rtx-4090", "b200"}) {
    for (const int devices : {1, 8, 64, 1000}) {
      SearchRequest request;
      request.base.model = model::preset("tinyllama-1.1b");
      request.base.sequence = 2048;
      request.base.global_batch = 4 * devices;
      request.cluster = uniform_cluster(find_device(device), devices);
      for (const Candidate& candidate : search(request).best) {
        const Step& step = candidate.step;
        EXPECT_LT(step.utilisation, 0.85) << plan_line(candidate.job);
        EXPECT_GT(step.compute, 0);
        EXPECT_GE(step.pipeline, -1e-12);
        // At most the power limit of all devices.
        EXPECT_LE(step.joules, step.step_seconds * devices * find_device(device).watts);
      }
    }
  }
}

TEST(Properties, EachMillisecondIsTold) {
  const Cluster cluster = some_cluster();
  for (Job job : some_jobs()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kActivation, Recompute::kFull}) {
      job.recompute = recompute;
      const Step step = simulate(job, cluster);
      double kernels = 0;
      for (const double seconds : step.kernels) {
        EXPECT_GE(seconds, 0) << plan_line(job);
        kernels += seconds;
      }
      EXPECT_NEAR(kernels, step.compute, 1e-9 + 1e-6 * step.compute) << plan_line(job);
      EXPECT_NEAR(
          step.compute + step.recompute + step.tensor + step.pipeline + step.after_pipeline(),
          step.step_seconds,
          1e-9)
          << plan_line(job);
    }
  }
}

TEST(Properties, AStateOfAllRanksIsTheWholeModel) {
  // The ZeRO shards of all ranks add up to one copy, for every stage, mesh and precision.
  Job job;
  job.model = model::preset("tinyllama-1.1b");
  job.software.weight_bytes = 2;
  job.software.optimizer_bytes = 12;
  const double parameters = count_parameters(job.model).total();
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 11}) {
      for (const int data : {2, 5}) {
        job.mesh = {.pipeline = pipeline, .data = data, .context = 1, .tensor = tensor};
        job.zero_stage = 1;
        double optimizer = 0;
        for (const StageMemory& stage : estimate_memory(job)) {
          optimizer += stage.peak.optimizer * tensor * data;
        }
        EXPECT_NEAR(optimizer / (12 * parameters), 1, 1e-9) << plan_line(job);
      }
    }
  }
}

}  // namespace properties_test
}  // namespace lockstep::plan
