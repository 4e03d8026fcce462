// What would make a job fit: single changes, then pairs of them.
#include <algorithm>

#include "base/format.h"
#include "plan/search.h"

namespace lockstep::plan {

namespace {

struct Change {
  std::string text;
  Job job;
};

// What one setting more or less would be, for each setting that saves memory.
std::vector<Change> single_changes(const Job& job) {
  std::vector<Change> changes;
  const auto change = [&](const auto& edit) {
    changes.push_back({"", job});
    changes.back().text = edit(changes.back().job);
  };
  for (int stage = job.zero_stage + 1; stage <= 3 && job.mesh.data > 1; ++stage) {
    change([&](Job& j) {
      j.zero_stage = stage;
      return fmt::format("parallel.zero_stage={}", stage);
    });
  }
  if (job.recompute != Recompute::kFull) {
    change([](Job& j) {
      j.recompute = Recompute::kFull;
      j.recompute_share = 1;
      return std::string("parallel.recompute=full");
    });
  }
  for (int64_t micro = job.micro_batch / 2; micro >= 1; micro /= 2) {
    change([&](Job& j) {
      j.micro_batch = micro;
      return fmt::format(
          "training.per_device_train_batch_size={} training.gradient_accumulation_steps={}",
          micro,
          j.micro_batches());
    });
  }
  if (job.offload == Offload::kNone) {
    change([](Job& j) {
      j.offload = Offload::kOptimizer;
      return std::string("parallel.offload_optimizer.device=cpu");
    });
  }
  for (const int factor : {2, 4, 8}) {
    if (job.mesh.data % factor == 0 && job.mesh.tensor * factor <= job.model.heads) {
      change([&](Job& j) {
        j.mesh.data /= factor;
        j.mesh.tensor *= factor;
        j.sequence_parallel = true;
        return fmt::format("parallel.tensor={} parallel.sequence_parallel=true", j.mesh.tensor);
      });
    }
    if (job.mesh.data % factor == 0 && job.mesh.pipeline * factor <= job.model.layers &&
        job.zero_stage < 2) {
      change([&](Job& j) {
        j.mesh.data /= factor;
        j.mesh.pipeline *= factor;
        return fmt::format("parallel.pipeline={}", j.mesh.pipeline);
      });
    }
  }
  return changes;
}

}  // namespace

std::vector<Remedy> remedies(const Job& job, const Cluster& cluster) {
  const double room = usable_bytes(cluster.slowest().device);
  const double now = largest(estimate_memory(job)).peak.total();
  std::vector<Remedy> result;
  const auto consider = [&](const std::string& text, const Job& changed) {
    const double bytes = largest(estimate_memory(changed)).peak.total();
    if (bytes < now * 0.995) {
      result.push_back({text, bytes, simulate(changed, cluster).step_seconds, bytes <= room});
    }
  };
  const std::vector<Change> singles = single_changes(job);
  for (const Change& change : singles) {
    consider(change.text, change.job);
  }
  const auto fits = [](const Remedy& remedy) { return remedy.fits; };
  if (std::none_of(result.begin(), result.end(), fits)) {
    for (const Change& first : singles) {
      for (const Change& second : single_changes(first.job)) {
        if (first.text < second.text) {  // each pair once
          consider(first.text + " " + second.text, second.job);
        }
      }
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const Remedy& a, const Remedy& b) {
    return a.fits != b.fits ? a.fits : a.seconds < b.seconds;
  });
  return result;
}

}  // namespace lockstep::plan
