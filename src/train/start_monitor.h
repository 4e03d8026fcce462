// Creates the monitor of a run from its job's configuration. Used by job.cpp.
#pragma once

#include <optional>

#include "train/job.h"

namespace lockstep::train {

/// Creates the monitor on rank 0 and writes config.yaml to the same folder. Must be called on every
/// rank.
void start_monitor(
    Job& job, RankContext& rank_context, std::optional<monitor::TrainerState> resumed);
/// If monitor.peak_tflops is not set, measures the peak rate for MFU. Must be called after the
/// first step, which would otherwise be delayed, and on every rank.
void measure_peak_of_run(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
