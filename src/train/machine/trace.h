// The trace of one training step on every rank (`lockstep train --trace FILE`).
#pragma once

#include <filesystem>

#include "monitor/trace.h"
#include "parallel/parallel_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/machine/device_kernels.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {

/// Watches a step of this rank from its construction to write(): the pipeline's actions, the
/// communication of every group, and the copies of offloaded state. All ranks must trace the same
/// step.
class StepTrace {
 public:
  StepTrace(
      parallel::ParallelModel& model, parallel::ParallelGroups& axes, RankContext& rank_context);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// A part of the step that is not the pipeline's, from `begin` until now.
  void mark(const char* name, double begin);
  /// Ends the step. Rank 0 writes the file and logs the summary of all ranks; a rank on a GPU
  /// writes what that ran into a file of its own beside it (FILE-kernels-rankN.json). Every rank
  /// must call. Error (environment) where the file cannot be written.
  void write(const std::filesystem::path& file);

  /// Seconds of the clock that events are told in.
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
