// Schedules of one pipeline, cached by the number of micro-batches.
#include "schedule/schedules.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "schedule/check.h"
#include "schedule/file.h"

namespace lockstep::schedule {
namespace {

bool splits(const Schedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Action& action) {
      return action.kind == ActionKind::kBackwardInput;
    });
  });
}

Schedule make(const PipelineOptions& options, int ranks, int micro_batches) {
  const Kind kind = parse_kind(options.schedule);
  const bool has_its_own = kind == Kind::kZbV && options.virtual_stages == 1;
  return make_schedule(
      {.kind = kind,
       .ranks = ranks,
       .micro_batches = micro_batches,
       .virtual_stages = has_its_own ? 0 : options.virtual_stages});
}

}  // namespace

Schedules::Schedules(const PipelineOptions& options, int ranks) : options_(options), ranks_(ranks) {
  if (!names_a_file(options.schedule)) {
    placement_ = make(options_, ranks_, 1);
  } else {
    file_ = read_schedule(options.schedule);
    if (file_->ranks != ranks_) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{} is a schedule for {} ranks, but the pipeline has {}",
              options.schedule,
              file_->ranks,
              ranks_),
          fmt::format(
              "set parallel.pipeline={}, or write a file with {} lines", file_->ranks, ranks_));
    }
    placement_ = *file_;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (placement_.stages_of(rank).empty()) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format("{} has no actions for rank {}", options.schedule, rank),
            "remove its line and use one rank less");
      }
    }
  }
  splits_backward_ = splits(placement_);
}

const Schedule& Schedules::of(int micro_batches) {
  const auto found = made_.find(micro_batches);
  if (found != made_.end()) {
    return found->second;
  }
  if (file_ && micro_batches > file_->micro_batches) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is a schedule for {} micro-batches, but a step has {}",
            options_.schedule,
            file_->micro_batches,
            micro_batches),
        fmt::format(
            "set training.gradient_accumulation_steps={}, or write a longer file",
            file_->micro_batches));
  }
  Schedule made = file_ ? cut_down(*file_, micro_batches) : make(options_, ranks_, micro_batches);
  require_valid(made, options_.schedule);
  return made_.emplace(micro_batches, std::move(made)).first->second;
}

Schedule Schedules::forward_only(int micro_batches) const {
  Schedule result = placement_;
  result.micro_batches = micro_batches;
  for (int rank = 0; rank < result.ranks; ++rank) {
    std::vector<Action>& actions = result.actions[static_cast<size_t>(rank)];
    actions.clear();
    for (const int stage : result.stages_of(rank)) {
      for (int m = 0; m < micro_batches; ++m) {
        actions.push_back({ActionKind::kForward, stage, m});
      }
    }
  }
  return result;
}

}  // namespace lockstep::schedule
