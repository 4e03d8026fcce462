// What watches a run, from the configuration of its job. For job.cpp.
#pragma once

#include <optional>

#include "train/job.h"

namespace lockstep::train {

/// Makes the monitor on the first rank, and writes config.yaml beside its files. Every rank must
/// call.
void start_monitor(
    Job& job, RankContext& rank_context, std::optional<monitor::TrainerState> resumed);
/// Measures what shares of the peak are of, where monitor.peak_tflops does not say it. After the
/// first step, which would wait for it; every rank must call.
void measure_peak_of_run(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
