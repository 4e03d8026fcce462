// Simulates a schedule: start and end times, and deadlock detection.
#include "schedule/timeline.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::schedule {

namespace {

constexpr double kNotYet = -1;

// Returns the action that must finish first: for a forward, the forward of the previous stage; for
// a backward, the backward of the next stage.
std::optional<Action> dependency(const Schedule& schedule, const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
      if (action.stage > 0) {
        return Action{ActionKind::kForward, action.stage - 1, action.micro_batch};
      }
      return std::nullopt;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      if (action.stage + 1 < schedule.stages) {
        return Action{ActionKind::kBackward, action.stage + 1, action.micro_batch};
      }
      return std::nullopt;
    case ActionKind::kBackwardWeight:
      break;
  }
  return std::nullopt;
}

// Advances each rank until it must wait, and continues it when the action that it waits for has
// finished.
class Runner {
 public:
  Runner(const Schedule& schedule, const Durations& durations)
      : schedule_(schedule),
        durations_(durations),
        forward_(pairs(), kNotYet),
        backward_(pairs(), kNotYet),
        position_(schedule.ranks, 0),
        clock_(schedule.ranks, 0.0) {
    timeline_.spans.resize(schedule.ranks);
    timeline_.busy.assign(schedule.ranks, 0.0);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      timeline_.spans[rank].reserve(schedule.actions[rank].size());
    }
  }

  /// Returns true if all ranks ran all their actions.
  bool run() {
    std::vector<int> ready;
    for (int rank = schedule_.ranks - 1; rank >= 0; --rank) {
      ready.push_back(rank);
    }
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      advance(rank, ready);
    }
    bool complete = true;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      complete = complete && position_[rank] == schedule_.actions[rank].size();
      const auto& spans = timeline_.spans[rank];
      timeline_.first.push_back(spans.empty() ? 0 : spans.front().start);
      timeline_.last.push_back(spans.empty() ? 0 : spans.back().end);
      timeline_.end = std::max(timeline_.end, timeline_.last.back());
    }
    return complete;
  }

  Timeline& timeline() { return timeline_; }

  std::vector<Wait> cycle() const {
    // Follows the waits, starting at any blocked rank. A rank is visited again after at most
    // `ranks` steps.
    std::vector<Wait> waits;
    std::vector<int> seen(schedule_.ranks, -1);
    int rank = 0;
    while (rank < schedule_.ranks && position_[rank] == schedule_.actions[rank].size()) {
      ++rank;
    }
    while (rank < schedule_.ranks && seen[rank] < 0 &&
           position_[rank] < schedule_.actions[rank].size()) {
      seen[rank] = static_cast<int>(waits.size());
      const Action at = schedule_.actions[rank][position_[rank]];
      const Action needs = dependency(schedule_, at).value_or(at);
      waits.push_back({rank, at, needs});
      rank = schedule_.rank_of_stage[needs.stage];
    }
    if (rank < schedule_.ranks && seen[rank] > 0) {
      waits.erase(waits.begin(), waits.begin() + seen[rank]);
    }
    return waits;
  }

 private:
  size_t pairs() const { return static_cast<size_t>(schedule_.stages) * schedule_.micro_batches; }
  size_t index(const Action& action) const {
    return static_cast<size_t>(action.stage) * schedule_.micro_batches + action.micro_batch;
  }

  // Returns the time at which the input of the action is available; infinity if it has not been
  // computed yet.
  double available(int rank, const Action& action) const {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    const std::optional<Action> needs = dependency(schedule_, action);
    if (!needs.has_value()) {
      return 0;
    }
    const bool forward = needs->kind == ActionKind::kForward;
    const double done = forward ? forward_[index(*needs)] : backward_[index(*needs)];
    if (done == kNotYet) {
      return kNever;
    }
    const bool same_rank = schedule_.rank_of_stage[needs->stage] == rank;
    return done + (same_rank ? 0 : durations_.message[std::min(needs->stage, action.stage)]);
  }

  double length(const Action& action) const {
    const StageTimes& times = durations_.stages[action.stage];
    switch (action.kind) {
      case ActionKind::kForward:
        return times.forward;
      case ActionKind::kBackward:
        return times.input + times.weight;
      case ActionKind::kBackwardInput:
        return times.input;
      case ActionKind::kBackwardWeight:
        break;
    }
    return times.weight;
  }

  void advance(int rank, std::vector<int>& ready) {
    const std::vector<Action>& actions = schedule_.actions[rank];
    while (position_[rank] < actions.size()) {
      const Action& action = actions[position_[rank]];
      const double start = std::max(clock_[rank], available(rank, action));
      if (start == std::numeric_limits<double>::infinity()) {
        return;
      }
      const double end = start + length(action);
      timeline_.spans[rank].push_back({start, end});
      timeline_.busy[rank] += end - start;
      clock_[rank] = end;
      ++position_[rank];
      finish(rank, action, end, ready);
    }
  }

  void finish(int rank, const Action& action, double end, std::vector<int>& ready) {
    int waits = -1;  // stage whose rank may wait for this action
    if (action.kind == ActionKind::kForward) {
      forward_[index(action)] = end;
      waits = action.stage + 1;
    } else if (action.kind != ActionKind::kBackwardWeight) {
      backward_[index(action)] = end;
      waits = action.stage - 1;
    }
    if (waits < 0 || waits >= schedule_.stages || schedule_.rank_of_stage[waits] == rank) {
      return;
    }
    if (!durations_.send_blocks.empty()) {
      clock_[rank] += durations_.send_blocks[std::min(waits, action.stage)];
    }
    ready.push_back(schedule_.rank_of_stage[waits]);
  }

  const Schedule& schedule_;
  const Durations& durations_;
  std::vector<double> forward_, backward_;  // end times, indexed by (stage, micro-batch)
  std::vector<size_t> position_;
  std::vector<double> clock_;
  Timeline timeline_;
};

}  // namespace

Durations even_durations(const Schedule& schedule, StageTimes of_a_rank, double message) {
  const double share = 1.0 / schedule.virtual_stages();
  Durations result;
  result.stages.assign(
      schedule.stages,
      {.forward = of_a_rank.forward * share,
       .input = of_a_rank.input * share,
       .weight = of_a_rank.weight * share});
  result.message.assign(schedule.stages, message);
  return result;
}

double Timeline::bubble() const {
  double sum = 0;
  for (const double rank : busy) {
    sum += rank;
  }
  return end > 0 ? 1 - sum / (end * static_cast<double>(busy.size())) : 0;
}

double Timeline::longest_span() const {
  double span = 0;
  for (size_t rank = 0; rank < busy.size(); ++rank) {
    span = std::max(span, last[rank] - first[rank]);
  }
  return span;
}

double Timeline::span_bubble() const {
  const double span = longest_span();
  return span > 0 ? 1 - *std::max_element(busy.begin(), busy.end()) / span : 0;
}

Timeline time_schedule(const Schedule& schedule, const Durations& durations) {
  Runner runner(schedule, durations);
  if (!runner.run()) {
    const std::vector<Wait> cycle = runner.cycle();
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "the schedule has a deadlock: rank {} waits at {}",
            cycle.front().rank,
            action_text(cycle.front().at)));
  }
  return std::move(runner.timeline());
}

std::optional<Action> message_of(const Schedule& schedule, const Action& action) {
  const std::optional<Action> needs = dependency(schedule, action);
  if (!needs.has_value() ||
      schedule.rank_of_stage[needs->stage] == schedule.rank_of_stage[action.stage]) {
    return std::nullopt;
  }
  return needs;
}

std::optional<std::vector<Wait>> find_deadlock(const Schedule& schedule) {
  const Durations durations = even_durations(schedule, {});
  Runner runner(schedule, durations);
  if (runner.run()) {
    return std::nullopt;
  }
  return runner.cycle();
}

}  // namespace lockstep::schedule
