// Trace of one training step on all ranks (`lockstep train --trace FILE`).
#pragma once

#include <filesystem>

#include "monitor/trace.h"
#include "parallel/parallel_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/machine/device_kernels.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {

/// Records a step of this rank: pipeline actions, communication of every group, and copies of
/// offloaded state. Recording begins on construction and ends with write(). All ranks must trace
/// the same step.
class StepTrace {
 public:
  StepTrace(
      parallel::ParallelModel& model, parallel::ParallelGroups& axes, RankContext& rank_context);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Records a span of the step outside the pipeline, from `begin` until now.
  void mark(const char* name, double begin);
  /// Ends the trace. Rank 0 writes the file and logs a summary of all ranks. Each rank on a GPU
  /// writes its kernels to a separate file (FILE-kernels-rankN.json). Must be called on every rank.
  /// Throws Error (environment) if the file cannot be written.
  void write(const std::filesystem::path& file);

  /// Returns the current time in seconds, on the clock of the events.
  static double now();

 private:
  void stop_watching();

  parallel::ParallelModel& model_;
  parallel::ParallelGroups& axes_;
  RankContext& rank_context_;
  DeviceKernels kernels_;
  monitor::RankTrace trace_;
};

}  // namespace lockstep::train
