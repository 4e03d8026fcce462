// Creates the monitor of a run from its job's configuration. Used by job.cpp.
#pragma once

#include <optional>

#include "train/job.h"

namespace lockstep::train {

/// Creates the monitor on rank 0 and writes config.yaml next to its files. Every rank must call.
void start_monitor(
    Job& job, RankContext& rank_context, std::optional<monitor::TrainerState> resumed);
/// Measures the peak rate for MFU if monitor.peak_tflops is not set. Call after the first step,
/// which would otherwise be delayed. Every rank must call.
void measure_peak_of_run(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
