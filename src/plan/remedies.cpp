// Searches for changes that make a job fit into memory.
#include "plan/remedies.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "plan/memory/memory.h"
#include "plan/simulate.h"

namespace lockstep::plan {

namespace {

constexpr double kWorthwhile = 0.005;  // minimum saving, as a fraction of the memory

// Returns the keys that differ between two jobs, including dependent ranks and micro-batches.
std::string keys_of(const Job& before, const Job& after) {
  std::string text;
  const auto key = [&](const char* name, const auto& value, bool differs) {
    if (differs) {
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
    }
  };
  key("parallel.zero_stage", after.zero_stage, after.zero_stage != before.zero_stage);
  key("parallel.recompute", recompute_name(after.recompute), after.recompute != before.recompute);
  const bool offloads = after.offload != before.offload;
  key("parallel.offload_optimizer.device", "cpu", offloads);
  key("parallel.offload_param.device", "cpu", offloads && after.offload == Offload::kAll);
  key("parallel.tensor", after.mesh.tensor, after.mesh.tensor != before.mesh.tensor);
  key("parallel.sequence_parallel", true, after.sequence_parallel != before.sequence_parallel);
  key("parallel.pipeline", after.mesh.pipeline, after.mesh.pipeline != before.mesh.pipeline);
  key("parallel.data", after.mesh.data, after.mesh.data != before.mesh.data);
  key("training.per_device_train_batch_size",
      after.micro_batch,
      after.micro_batch != before.micro_batch);
  key("training.gradient_accumulation_steps",
      after.micro_batches(),
      after.micro_batches() != before.micro_batches());
  return text;
}

// Jobs with increasing values of one setting.
using Ladder = std::vector<Job>;

Ladder more_zero(const Job& job) {
  Ladder steps;
  const int most = job.mesh.pipeline > 1 ? 1 : 3;
  for (int stage = job.zero_stage + 1; stage <= most && job.mesh.data * job.mesh.context > 1;
       ++stage) {
    steps.push_back(job);
    steps.back().zero_stage = stage;
  }
  return steps;
}

Ladder more_recomputation(const Job& job) {
  Ladder steps;
  const auto add = [&](Recompute recompute) {
    steps.push_back(job);
    steps.back().recompute = recompute;
    steps.back().recompute_share = 1;
  };
  if (job.recompute == Recompute::kNone) {
    add(Recompute::kActivation);
  }
  if (job.recompute != Recompute::kFull || job.recompute_share < 1) {
    add(Recompute::kFull);
  }
  return steps;
}

Ladder smaller_micro_batches(const Job& job) {
  constexpr int64_t kMostSteps = 64;
  Ladder steps;
  // Tries only divisors so that the global batch does not change.
  for (int64_t parts = 2; parts <= std::min(job.micro_batch, kMostSteps); ++parts) {
    if (job.micro_batch % parts == 0) {
      steps.push_back(job);
      steps.back().micro_batch = job.micro_batch / parts;
    }
  }
  return steps;
}

Ladder more_offloading(const Job& job) {
  Ladder steps;
  if (job.software.device_is_host || job.offload == Offload::kAll) {
    return steps;
  }
  if (job.offload == Offload::kNone) {
    steps.push_back(job);
    steps.back().offload = Offload::kOptimizer;
  }
  if (job.zero_stage == 3) {
    steps.push_back(job);
    steps.back().offload = Offload::kAll;
  }
  return steps;
}

Ladder more_tensor_ranks(const Job& job, const Cluster& cluster) {
  Ladder steps;
  for (const int factor : {2, 4, 8}) {
    const int tensor = job.mesh.tensor * factor;
    if (job.mesh.data % factor == 0 && tensor <= job.model.heads &&
        cluster.common_node_size() % tensor == 0) {
      steps.push_back(job);
      steps.back().mesh.data /= factor;
      steps.back().mesh.tensor = tensor;
      steps.back().sequence_parallel = true;
    }
  }
  return steps;
}

Ladder more_stages(const Job& job) {
  Ladder steps;
  for (const int factor : {2, 4, 8}) {
    const int pipeline = job.mesh.pipeline * factor;
    if (job.mesh.data % factor == 0 && job.zero_stage < 2 &&
        pipeline * job.virtual_stages <= job.model.layers) {
      steps.push_back(job);
      steps.back().mesh.data /= factor;
      steps.back().mesh.pipeline = pipeline;
      steps.back().split.clear();
    }
  }
  return steps;
}

std::array<Ladder, 6> ladders_of(const Job& job, const Cluster& cluster) {
  return {
      more_zero(job),
      more_recomputation(job),
      smaller_micro_batches(job),
      more_offloading(job),
      more_tensor_ranks(job, cluster),
      more_stages(job)};
}

class Finder {
 public:
  Finder(const Job& job, const Cluster& cluster)
      : cluster_(cluster),
        now_(largest(estimate_memory(job)).peak.total()) {}

  // Adds a change. Returns true if the changed job fits.
  bool consider(const std::string& text, const Job& changed) {
    if (!schedule_goes(changed)) {
      return false;
    }
    const double bytes = largest(estimate_memory(changed)).peak.total();
    const bool is_enough = fits(changed, cluster_);
    if (bytes < now_ * (1 - kWorthwhile)) {
      found_.push_back({text, bytes, simulate(changed, cluster_).step_seconds, is_enough});
    }
    return is_enough;
  }

  // Starting point for searching the minimum change of each setting. `words` contains the keys that
  // lead to `base`; they are reported with the keys of the change.
  struct Start {
    std::string words;
    const Job& base;
  };
  void climb(const Start& start, const Job& from, size_t first_ladder) {
    const std::array<Ladder, 6> ladders = ladders_of(from, cluster_);
    for (size_t i = first_ladder; i < ladders.size(); ++i) {
      for (const Job& changed : ladders.at(i)) {
        if (consider(start.words + keys_of(start.base, changed), changed)) {
          break;
        }
      }
    }
  }

  bool any_fits() const {
    return std::any_of(
        found_.begin(), found_.end(), [](const Remedy& remedy) { return remedy.fits; });
  }

  std::vector<Remedy> take() {
    std::stable_sort(found_.begin(), found_.end(), [](const Remedy& a, const Remedy& b) {
      if (a.fits != b.fits) {
        return a.fits;
      }
      return a.fits ? a.seconds < b.seconds : a.bytes < b.bytes;
    });
    return std::move(found_);
  }

 private:
  const Cluster& cluster_;
  const double now_;
  std::vector<Remedy> found_;
};

}  // namespace

std::vector<Remedy> remedies(
    const Job& job, const Cluster& cluster, const std::vector<Change>& others) {
  Finder finder(job, cluster);
  for (const Change& other : others) {
    finder.consider(other.text, other.job);
  }
  finder.climb({"", job}, job, 0);
  if (finder.any_fits()) {
    return finder.take();
  }
  for (const Change& other : others) {
    finder.climb({other.text + " ", other.job}, other.job, 0);
  }
  const std::array<Ladder, 6> ladders = ladders_of(job, cluster);
  for (size_t i = 0; i < ladders.size(); ++i) {
    for (const Job& first : ladders.at(i)) {
      finder.climb({"", job}, first, i + 1);
    }
  }
  return finder.take();
}

}  // namespace lockstep::plan
