// Measures a machine that nobody has measured, between the steps of the first run on it.
#pragma once

#include <filesystem>
#include <memory>

#include "train/machine/machine.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {

/// A part at a time, so that measuring takes at most a fifth of the time of the steps; what the
/// run's end leaves of it is measured then. Under two seconds in all, on two cores of 200 GFLOP/s.
/// Figures that were taken while something else had the processors are not kept.
class MeasuringBetweenSteps {
 public:
  /// `wanted` counts on rank 0 alone: whether it is to be done at all. `world` must outlive it.
  MeasuringBetweenSteps(RankContext& rank_context, bool wanted)
      : rank_context_(rank_context),
        wanted_(wanted) {}

  /// On rank 0, `seconds` after the first step began: whether a part is to be measured now. The
  /// first is only after three seconds, which short runs do not have.
  bool is_due(double seconds) const;
  /// Measures a part, after the last of them keeps the figures. Every rank must call.
  void measure();
  /// What is left, where it was begun. Every rank must call.
  void finish();

 private:
  void keep();

  RankContext& rank_context_;
  bool wanted_;
  std::unique_ptr<MachineMeasuring> measuring_;  // from the first part to the last
  double seconds_ = 0;                           // that it took
};

/// Whether this machine, with as many ranks, is one that measuring is for: CPUs of one machine,
/// whose ranks are processes, and no figures of it; and the environment variable
/// LOCKSTEP_MEASURE_MACHINE is not 0.
bool is_unmeasured(const RankContext& rank_context);

}  // namespace lockstep::train
