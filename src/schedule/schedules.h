// Pipeline options set by the user, and the schedules built from them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace lockstep::schedule {

struct PipelineOptions {
  std::string schedule = "1f1b";  // name of a schedule kind, or path of a schedule file
  int virtual_stages = 1;         // number of stages per rank, for schedule=interleaved
  std::string split = "auto";     // see model/split.h
};

/// Schedules of one pipeline, built once for each number of micro-batches. If the last step of an
/// epoch has fewer micro-batches, a schedule from a file is truncated.
class Schedules {
 public:
  /// Throws Error (config) if the kind is unknown or does not support the number of virtual stages,
  /// or if a file is invalid or written for another number of ranks.
  Schedules(const PipelineOptions& options, int ranks);

  /// Returns the checked schedule. Throws Error (config) if a schedule file has fewer
  /// micro-batches.
  const Schedule& of(int micro_batches);
  /// Returns a schedule with only the forward passes, stage by stage, with the same placement of
  /// stages.
  Schedule forward_only(int micro_batches) const;

  /// Return the number of stages in the pipeline, and the stages of a rank in ascending order. They
  /// do not depend on the number of micro-batches.
  int stages() const { return placement_.stages; }
  std::vector<int> stages_of(int rank) const { return placement_.stages_of(rank); }
  const std::vector<int>& rank_of_stage() const { return placement_.rank_of_stage; }
  int rank_of(int stage) const { return placement_.rank_of_stage.at(static_cast<size_t>(stage)); }
  /// Returns true if the schedule defers weight gradients.
  bool splits_backward() const { return splits_backward_; }

 private:
  PipelineOptions options_;
  int ranks_;
  std::optional<Schedule> file_;
  Schedule placement_;
  bool splits_backward_ = false;
  std::map<int, Schedule> made_;
};

}  // namespace lockstep::schedule
