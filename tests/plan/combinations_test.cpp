// Tests that every combination of settings gives plausible estimates.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "plan/search.h"

namespace lockstep::plan {
namespace combinations_test {

constexpr double kMayRound = 1.0001;

// Calls visit(job) for every combination; the model has 24 layers.
template <class Visit>
void visit_jobs(Visit&& visit) {
  Job job;
  job.model = model::preset("gpt2-medium");
  job.global_batch = 64;
  for (const int zero : {0, 1, 2, 3}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kActivation, Recompute::kFull}) {
      for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kAll}) {
        for (const Precision precision : {Precision::kFloat32, Precision::kMixed16}) {
          for (const int pipeline : {1, 4}) {
            for (const int tensor : {1, 2}) {
              for (const int context : {1, 2}) {
                for (const int64_t rank : {0, 16}) {
                  job.zero_stage = zero;
                  job.recompute = recompute;
                  job.offload = offload;
                  job.precision = precision;
                  job.mesh = {
                      .pipeline = pipeline, .data = 4, .context = context, .tensor = tensor};
                  job.adapter_rank = rank;
                  visit(job);
                }
              }
            }
          }
        }
      }
    }
  }
}

double peak(const Job& job) {
  return largest(estimate_memory(job)).peak.total();
}

TEST(Combinations, AreFiniteAndAddUp) {
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 64);
  visit_jobs([&](const Job& job) {
    for (const StageMemory& stage : estimate_memory(job)) {
      const Memory& m = stage.peak;
      for (const double bytes :
           {m.parameters,
            m.gradients,
            m.optimizer,
            m.activations,
            m.working,
            m.logits,
            m.gathered,
            m.buckets,
            m.fragmentation,
            m.kept,
            m.host,
            m.nvme}) {
        ASSERT_TRUE(std::isfinite(bytes) && bytes >= 0) << plan_line(job);
      }
    }
    const double seconds = simulate(job, cluster).step_seconds;
    ASSERT_TRUE(std::isfinite(seconds) && seconds > 0) << plan_line(job);
  });
}

TEST(Combinations, WhatSavesMemorySavesIt) {
  std::set<std::string> wrong;
  visit_jobs([&](const Job& job) {
    const double now = peak(job);
    const auto less = [&](const char* what, auto change) {
      Job changed = job;
      change(changed);
      if (peak(changed) > now * kMayRound) {
        wrong.insert(std::string(what) + ": " + plan_line(job));
      }
    };
    less("a smaller micro-batch", [](Job& j) { j.micro_batch = 1; });
    less("half the sequence", [](Job& j) { j.sequence /= 2; });
    if (job.recompute != Recompute::kFull) {
      less("recomputation", [](Job& j) { j.recompute = Recompute::kFull; });
    }
    if (job.zero_stage == 0) {
      less("zero 1", [](Job& j) { j.zero_stage = 1; });
    }
    if (job.offload == Offload::kNone) {
      less("offloading", [](Job& j) { j.offload = Offload::kOptimizer; });
    }
    if (job.adapter_rank > 0 && job.offload != Offload::kAll) {  // weights are offloaded
      less("8 bits", [](Job& j) { j.frozen_bytes = 1; });
    }
    less("tensor ranks", [](Job& j) {
      j.mesh.tensor *= 2;
      j.sequence_parallel = true;
    });
  });
  std::string all;
  for (const std::string& line : wrong) {
    all += line + "\n";
  }
  EXPECT_TRUE(wrong.empty()) << wrong.size() << "\n" << all.substr(0, 3000);
}

TEST(Combinations, WhatCostsTimeCostsIt) {
  const Cluster cluster = uniform_cluster(find_device("a100-80gb"), 64);
  std::set<std::string> wrong;
  visit_jobs([&](const Job& job) {
    const double now = simulate(job, cluster).step_seconds;
    const auto more = [&](const char* what, auto change) {
      Job changed = job;
      change(changed);
      if (simulate(changed, cluster).step_seconds * kMayRound < now) {
        wrong.insert(std::string(what) + ": " + plan_line(job));
      }
    };
    if (job.recompute == Recompute::kNone && job.offload != Offload::kAll) {
      more("recomputation", [](Job& j) { j.recompute = Recompute::kFull; });
    }
    if (job.offload == Offload::kNone) {
      more("offloading", [](Job& j) { j.offload = Offload::kOptimizer; });
    }
    more("twice the batch", [](Job& j) { j.global_batch *= 2; });
  });
  std::string all;
  for (const std::string& line : wrong) {
    all += line + "\n";
  }
  EXPECT_TRUE(wrong.empty()) << wrong.size() << "\n" << all.substr(0, 3000);
}

}  // namespace combinations_test
}  // namespace lockstep::plan
