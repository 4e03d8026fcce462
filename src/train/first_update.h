// Report of a first update that changes no weight.
#pragma once

#include <optional>
#include <vector>

#include "parallel/parallel_model.h"
#include "train/job.h"

namespace lockstep::train {

/// Compares the trained weights before and after the first update of an attempt. If every change is
/// lost to rounding, training would finish with the weights that it began with. Updates with a
/// learning rate of 0 (warm-up) and skipped float16 steps do not count.
class FirstUpdate {
 public:
  /// Hashes this rank's trained weights. Call on every rank before the update.
  void begin(Job& job, double learning_rate);
  /// Compares them. If no rank's weights changed, rank 0 logs a warning and records the event
  /// "unchanged weights". A gradient of exactly 0 is reported by report_gradient() instead. Call on
  /// every rank after the update, with the same result.
  void end(
      Job& job,
      const parallel::StepResult& result,
      double learning_rate,
      RankContext& rank_context);

 private:
  bool is_done_ = false;
  std::optional<std::vector<int64_t>> before_;  // set between begin() and end()
};

}  // namespace lockstep::train
