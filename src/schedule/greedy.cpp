// Builds zero-bubble schedules from measured times with a greedy heuristic.
#include "schedule/greedy.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::schedule {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The next action that a rank can run, and its start time.
struct Choice {
  double start = kNever;
  ActionKind kind = ActionKind::kForward;
};

// Thresholds of the heuristic, as fractions of W and F.
struct Patience {
  double gap = 0;    // if the rank would be idle for longer than this fraction of W, it runs a W
                     // instead
  double delay = 0;  // a forward that would delay a gradient by more than this fraction of F is not
                     // started
};

// Builds the schedule in order of time, so that a rank knows all messages that have arrived when
// its next action is chosen.
class Builder {
 public:
  Builder(
      int micro_batches,
      const Durations& durations,
      const GreedyLimits& limits,
      const Patience& patience)
      : micro_batches_(micro_batches),
        durations_(durations),
        limits_(limits),
        patience_(patience),
        ranks_(durations.stages.size()) {
    const auto ranks = static_cast<int>(ranks_.size());
    schedule_.kind = Kind::kFile;
    schedule_.ranks = ranks;
    schedule_.stages = ranks;
    schedule_.micro_batches = micro_batches;
    schedule_.actions.resize(ranks);
    schedule_.held_limit.assign(ranks, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      schedule_.rank_of_stage.push_back(rank);
      ranks_[rank].inputs.assign(micro_batches, rank == 0 ? 0 : kNever);
      ranks_[rank].gradients.assign(micro_batches, kNever);
    }
  }

  Schedule build() {
    const size_t all = ranks_.size() * static_cast<size_t>(micro_batches_) * 3;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      choices_.push_back(choose(ranks_[rank], durations_.stages[rank]));
    }
    for (size_t done = 0; done < all; ++done) {
      const auto next =
          std::min_element(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
            return a.start < b.start;
          });
      const auto rank = static_cast<int>(next - choices_.begin());
      act(rank, *next);
      // An action affects only its own rank and the two neighboring ranks.
      for (int r = std::max(rank - 1, 0); r <= std::min(rank + 1, schedule_.ranks - 1); ++r) {
        choices_[r] = choose(ranks_[r], durations_.stages[r]);
      }
    }
    return std::move(schedule_);
  }

 private:
  struct Rank {
    double clock = 0;
    int forwards = 0, inputs_done = 0, weights = 0;
    std::vector<double> inputs, gradients;  // arrival times, [micro_batches]
  };

  Choice choose(const Rank& rank, const StageTimes& times) const {
    const auto ready = [&](const std::vector<double>& arrivals, int which) {
      return which < micro_batches_ ? std::max(rank.clock, arrivals[which]) : kNever;
    };
    const double backward =
        rank.inputs_done < rank.forwards ? ready(rank.gradients, rank.inputs_done) : kNever;
    const double held =
        rank.forwards - rank.inputs_done + (rank.inputs_done - rank.weights) * limits_.weight_share;
    double forward = held + 1 <= limits_.held + 1e-9 ? ready(rank.inputs, rank.forwards) : kNever;
    if (forward < backward && backward < kNever &&
        forward + times.forward > backward + patience_.delay * times.forward) {
      forward = kNever;
    }
    const Choice next = backward <= forward ? Choice{backward, ActionKind::kBackwardInput}
                                            : Choice{forward, ActionKind::kForward};
    const bool pending = rank.weights < rank.inputs_done;
    if (pending && next.start - rank.clock > patience_.gap * times.weight) {
      return {rank.clock, ActionKind::kBackwardWeight};
    }
    return next;
  }

  void act(int index, const Choice& choice) {
    Rank& rank = ranks_[index];
    const StageTimes& times = durations_.stages[index];
    const auto message = [&](int stage) { return durations_.message[stage]; };
    int which = 0;
    switch (choice.kind) {
      case ActionKind::kForward:
        which = rank.forwards++;
        schedule_.held_limit[index] =
            std::max(schedule_.held_limit[index], rank.forwards - rank.weights);
        rank.clock = choice.start + times.forward;
        if (index + 1 < schedule_.ranks) {
          ranks_[index + 1].inputs[which] = rank.clock + message(index);
        } else {
          rank.gradients[which] = rank.clock;
        }
        break;
      case ActionKind::kBackwardInput:
      case ActionKind::kBackward:
        which = rank.inputs_done++;
        rank.clock = choice.start + times.input;
        if (index > 0) {
          ranks_[index - 1].gradients[which] = rank.clock + message(index - 1);
        }
        break;
      case ActionKind::kBackwardWeight:
        which = rank.weights++;
        rank.clock = choice.start + times.weight;
        break;
    }
    schedule_.actions[index].push_back({choice.kind, index, which});
  }

  int micro_batches_;
  const Durations& durations_;
  GreedyLimits limits_;
  Patience patience_;
  std::vector<Rank> ranks_;
  std::vector<Choice> choices_;  // next action of each rank
  Schedule schedule_;
};

}  // namespace

Schedule make_greedy(int micro_batches, const Durations& durations, const GreedyLimits& limits) {
  if (micro_batches < 1 || limits.held < 1 || durations.stages.empty() ||
      durations.message.size() != durations.stages.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "schedule with {} stages, {} micro-batches and {} held: each must be at least 1",
            durations.stages.size(),
            micro_batches,
            limits.held));
  }
  constexpr std::array<double, 5> kGaps{0, 0.25, 0.5, 0.75, 1};
  constexpr std::array<double, 5> kDelays{1, 0.75, 0.5, 0.25, 0.1};
  Schedule best;
  double shortest = kNever;
  for (const double delay : kDelays) {
    for (const double gap : kGaps) {
      Schedule schedule =
          Builder(micro_batches, durations, limits, {.gap = gap, .delay = delay}).build();
      const double span = time_schedule(schedule, durations).longest_span();
      if (span < shortest) {
        shortest = span;
        best = std::move(schedule);
      }
    }
  }
  return best;
}

}  // namespace lockstep::schedule
