// What a user chose of a pipeline, and the schedules that follow from it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace lockstep::schedule {

struct PipelineOptions {
  std::string schedule = "1f1b";  // a kind's name, or the path of a file of actions
  int virtual_stages = 1;         // stages a rank, of schedule=interleaved
  std::string split = "auto";     // see model/split.h
};

/// The schedules of one pipeline, made once for each number of micro-batches. Steps of an epoch's
/// end have fewer micro-batches: a file's schedule is then cut down to those there are.
class Schedules {
 public:
  /// Throws (config): no such kind, virtual stages that it does not have, a file that is not right
  /// or is of another number of ranks.
  Schedules(const PipelineOptions& options, int ranks);

  /// Checked. Throws (config) where a file has fewer micro-batches.
  const Schedule& of(int micro_batches);
  /// Forward passes alone, stage by stage, on the same placement.
  Schedule forward_only(int micro_batches) const;

  /// Stages of the whole pipeline, and those of a rank, ascending: the same for every number of
  /// micro-batches.
  int stages() const { return placement_.stages; }
  std::vector<int> stages_of(int rank) const { return placement_.stages_of(rank); }
  const std::vector<int>& rank_of_stage() const { return placement_.rank_of_stage; }
  int rank_of(int stage) const { return placement_.rank_of_stage.at(static_cast<size_t>(stage)); }
  /// Whether weight gradients are put off.
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
