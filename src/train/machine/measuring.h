// Measures an unknown machine between the steps of the first run on it.
#pragma once

#include <filesystem>
#include <memory>

#include "train/machine/machine.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {

/// Runs one measurement at a time. Measurements take at most a fifth of the time of the steps so
/// far; the remaining ones run after the last step. They take less than two seconds in total on two
/// cores of 200 GFLOP/s. Results are discarded if another program competed for the processors.
class MeasuringBetweenSteps {
 public:
  /// Measures only if `wanted`, which is read on rank 0. `rank_context` must outlive the object.
  MeasuringBetweenSteps(RankContext& rank_context, bool wanted)
      : rank_context_(rank_context),
        wanted_(wanted) {}

  /// Returns true on rank 0 if a measurement is due. `seconds` is the time since the start of the
  /// first step. The first measurement is due after three seconds, so that short runs do not
  /// measure.
  bool is_due(double seconds) const;
  /// Runs one measurement, and saves the results after the last one. Must be called on every rank.
  void measure();
  /// Runs the remaining measurements if at least one has run. Must be called on every rank.
  void finish();

 private:
  void keep();

  RankContext& rank_context_;
  bool wanted_;
  std::unique_ptr<MachineMeasuring>
      measuring_;       // null before the first and after the last measurement
  double seconds_ = 0;  // total duration so far
};

/// Returns true if this machine should be measured with this number of ranks: the user asked for it
/// (`wanted`, or the environment variable LOCKSTEP_MEASURE_MACHINE, which takes precedence), all
/// ranks are CPU processes on one machine, and no results exist.
bool should_measure(bool wanted, const RankContext& rank_context);

}  // namespace lockstep::train
