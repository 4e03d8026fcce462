// What a user chose of a pipeline, and the schedules that follow from it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/language_model.h"
#include "parallel/autograd/deferred.h"
#include "schedule/schedule.h"

namespace lockstep::parallel {

struct PipelineOptions {
  std::string schedule = "1f1b";  // a kind's name, or the path of a file of actions
  int virtual_stages = 1;         // stages a rank, of schedule=interleaved
  std::string split = "auto";     // see split.h
};

/// The schedules of one pipeline, made once for each number of micro-batches. Steps of an epoch's
/// end have fewer micro-batches: a file's schedule is then cut down to those there are.
class Schedules {
 public:
  /// Throws (config): no such kind, virtual stages that it does not have, a file that is not right
  /// or is of another number of ranks.
  Schedules(const PipelineOptions& options, int ranks);

  /// Checked. Throws (config) where a file has fewer micro-batches.
  const schedule::Schedule& of(int micro_batches);
  /// Forward passes alone, stage by stage, on the same placement.
  schedule::Schedule forward_only(int micro_batches) const;

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
  std::optional<schedule::Schedule> file_;
  schedule::Schedule placement_;
  bool splits_backward_ = false;
  std::map<int, schedule::Schedule> made_;
};

/// What rank `rank` of `ranks` pipeline ranks builds of a model: one part a stage, ascending.
/// Throws (config) as Schedules and split_model do.
std::vector<nn::ModelPart> parts_of_rank(
    const model::ModelConfig& config,
    const PipelineOptions& options,
    int rank,
    int ranks,
    int64_t sequence_length);

/// Makes the linears of a stage leave weight gradients for later where the schedule of a pipeline
/// of `ranks` puts them off; null: it does not. To be called after layers were swapped.
std::shared_ptr<DeferredQueue> apply_deferral(
    nn::LanguageModel& stage, const PipelineOptions& options, int ranks);

}  // namespace lockstep::parallel
