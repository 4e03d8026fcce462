#include "parallel/pipeline/options.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "parallel/pipeline/split.h"
#include "schedule/check.h"
#include "schedule/file.h"

namespace lockstep::parallel {
namespace {

bool splits(const schedule::Schedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const schedule::Action& action) {
      return action.kind == schedule::ActionKind::kBackwardInput;
    });
  });
}

schedule::Schedule make(const PipelineOptions& options, int ranks, int micro_batches) {
  const schedule::Kind kind = schedule::parse_kind(options.schedule);
  const bool has_its_own = kind == schedule::Kind::kZbV && options.virtual_stages == 1;
  return schedule::make_schedule(
      {.kind = kind,
       .ranks = ranks,
       .micro_batches = micro_batches,
       .virtual_stages = has_its_own ? 0 : options.virtual_stages});
}

}  // namespace

Schedules::Schedules(const PipelineOptions& options, int ranks) : options_(options), ranks_(ranks) {
  if (!schedule::names_a_file(options.schedule)) {
    placement_ = make(options_, ranks_, 1);
  } else {
    file_ = schedule::read_schedule(options.schedule);
    if (file_->ranks != ranks_) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{} is a schedule of {} ranks, and the pipeline has {}",
              options.schedule,
              file_->ranks,
              ranks_),
          fmt::format(
              "set parallel.pipeline={}, or write a file of {} lines", file_->ranks, ranks_));
    }
    placement_ = *file_;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (placement_.stages_of(rank).empty()) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format("{} gives rank {} nothing to do", options.schedule, rank),
            "leave its line out, and start one rank less");
      }
    }
  }
  splits_backward_ = splits(placement_);
}

const schedule::Schedule& Schedules::of(int micro_batches) {
  const auto found = made_.find(micro_batches);
  if (found != made_.end()) {
    return found->second;
  }
  if (file_ && micro_batches > file_->micro_batches) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is a schedule of {} micro-batches, and a step has {}",
            options_.schedule,
            file_->micro_batches,
            micro_batches),
        fmt::format(
            "set training.gradient_accumulation_steps={}, or write a longer file",
            file_->micro_batches));
  }
  schedule::Schedule made =
      file_ ? schedule::cut_down(*file_, micro_batches) : make(options_, ranks_, micro_batches);
  schedule::require_valid(made, options_.schedule);
  return made_.emplace(micro_batches, std::move(made)).first->second;
}

schedule::Schedule Schedules::forward_only(int micro_batches) const {
  schedule::Schedule result = placement_;
  result.micro_batches = micro_batches;
  for (int rank = 0; rank < result.ranks; ++rank) {
    std::vector<schedule::Action>& actions = result.actions[static_cast<size_t>(rank)];
    actions.clear();
    for (const int stage : result.stages_of(rank)) {
      for (int m = 0; m < micro_batches; ++m) {
        actions.push_back({schedule::ActionKind::kForward, stage, m});
      }
    }
  }
  return result;
}

std::vector<nn::ModelPart> parts_of_rank(
    const model::ModelConfig& config,
    const PipelineOptions& options,
    int rank,
    int ranks,
    int64_t sequence_length) {
  const Schedules schedules(options, ranks);
  const std::vector<nn::ModelPart> all = split_model(
      config,
      {.stages = schedules.stages(), .split = options.split, .sequence_length = sequence_length});
  std::vector<nn::ModelPart> parts;
  for (const int stage : schedules.stages_of(rank)) {
    parts.push_back(all[static_cast<size_t>(stage)]);
  }
  return parts;
}

std::shared_ptr<DeferredQueue> apply_deferral(
    nn::LanguageModel& stage, const PipelineOptions& options, int ranks) {
  if (!Schedules(options, ranks).splits_backward()) {
    return nullptr;
  }
  auto queue = std::make_shared<DeferredQueue>();
  defer_weight_gradients(stage, queue);
  return queue;
}

}  // namespace lockstep::parallel
