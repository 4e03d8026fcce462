// Schedule verification: completeness, memory, deadlocks and message order.
#include "schedule/check.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "schedule/timeline.h"

namespace lockstep::schedule {

namespace {

constexpr size_t kProblemsListed = 20;

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {}

  Report run() {
    if (!check_shape()) {
      return std::move(report_);
    }
    check_complete();
    check_memory();
    if (report_.problems.empty()) {
      check_order();
    }
    return std::move(report_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> text, Args&&... args) {
    if (report_.problems.size() < kProblemsListed) {
      report_.problems.push_back(fmt::format(text, std::forward<Args>(args)...));
    }
  }

  bool check_shape() {
    const Schedule& s = schedule_;
    if (s.ranks < 1 || s.stages < 1 || s.micro_batches < 1 ||
        s.rank_of_stage.size() != static_cast<size_t>(s.stages) ||
        s.actions.size() != static_cast<size_t>(s.ranks) ||
        s.held_limit.size() != static_cast<size_t>(s.ranks)) {
      problem("the sizes of the schedule are inconsistent");
      return false;
    }
    for (int stage = 0; stage < s.stages; ++stage) {
      if (s.rank_of_stage[stage] < 0 || s.rank_of_stage[stage] >= s.ranks) {
        problem("stage {} is on rank {}, which does not exist", stage, s.rank_of_stage[stage]);
      }
    }
    for (int rank = 0; rank < s.ranks; ++rank) {
      for (const Action& action : s.actions[rank]) {
        if (action.stage < 0 || action.stage >= s.stages || action.micro_batch < 0 ||
            action.micro_batch >= s.micro_batches) {
          problem("rank {} runs {}, which does not exist", rank, action_text(action));
        } else if (s.rank_of_stage[action.stage] != rank) {
          problem(
              "rank {} runs {}, but stage {} is on rank {}",
              rank,
              action_text(action),
              action.stage,
              s.rank_of_stage[action.stage]);
        }
      }
    }
    return report_.problems.empty();
  }

  void check_complete() {
    const size_t pairs = static_cast<size_t>(schedule_.stages) * schedule_.micro_batches;
    std::vector<std::array<uint8_t, 4>> done(pairs, {0, 0, 0, 0});
    for (const std::vector<Action>& actions : schedule_.actions) {
      for (const Action& action : actions) {
        auto& counts = done[pair(action)];
        auto& count = counts[static_cast<size_t>(action.kind)];
        if (count < 255) {
          ++count;
        }
        if (count == 2) {
          problem("{} appears twice", action_text(action));
        }
        if (action.kind == ActionKind::kBackwardWeight && counts[2] == 0) {
          problem("{} comes before its I", action_text(action));
        }
        if (action.kind != ActionKind::kForward && counts[0] == 0) {
          problem("{} comes before its F", action_text(action));
        }
      }
    }
    for (size_t i = 0; i < pairs; ++i) {
      const int stage = static_cast<int>(i / schedule_.micro_batches);
      const int micro_batch = static_cast<int>(i % schedule_.micro_batches);
      const auto& [forward, backward, input, weight] = done[i];
      if (forward == 0) {
        problem("{} is missing", action_text({ActionKind::kForward, stage, micro_batch}));
      }
      if (backward != 0 && (input != 0 || weight != 0)) {
        problem(
            "stage {} has both a whole and a split backward of micro-batch {}", stage, micro_batch);
      } else if (backward == 0 && input == 0) {
        problem("{} is missing", action_text({ActionKind::kBackward, stage, micro_batch}));
      } else if (backward == 0 && weight == 0) {
        problem("{} is missing", action_text({ActionKind::kBackwardWeight, stage, micro_batch}));
      }
    }
  }

  void check_memory() {
    report_.held.assign(schedule_.ranks, 0);
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      int held = 0;
      for (const Action& action : schedule_.actions[rank]) {
        held += action.kind == ActionKind::kForward ? 1 : 0;
        report_.held[rank] = std::max(report_.held[rank], held);
        held -= action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
      }
      if (report_.held[rank] > schedule_.held_limit[rank]) {
        problem(
            "rank {} holds the activations of {} micro-batches at a time, but its limit is {}",
            rank,
            report_.held[rank],
            schedule_.held_limit[rank]);
      }
    }
  }

  void check_order() {
    const std::optional<std::vector<Wait>> cycle = find_deadlock(schedule_);
    if (cycle.has_value()) {
      std::string text = "deadlock: no rank can continue";
      for (const Wait& wait : *cycle) {
        text += fmt::format(
            "\n  rank {} is at {} and waits for {} of rank {}",
            wait.rank,
            action_text(wait.at),
            action_text(wait.needs),
            schedule_.rank_of_stage[wait.needs.stage]);
      }
      problem("{}", text);
      return;
    }
    check_message_order();
  }

  // Records the messages that each rank sends to each other rank, and compares them with the order
  // in which the receiver takes them.
  void check_message_order() {
    std::map<std::pair<int, int>, std::vector<Action>> sent;
    std::map<std::pair<int, int>, size_t> taken;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (const Action& action : schedule_.actions[rank]) {
        const int to = successor(action);
        if (to >= 0 && schedule_.rank_of_stage[to] != rank) {
          sent[{rank, schedule_.rank_of_stage[to]}].push_back(action);
        }
      }
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (const Action& action : schedule_.actions[rank]) {
        const std::optional<Action> needs = message_of(schedule_, action);
        if (!needs.has_value()) {
          continue;
        }
        const std::pair<int, int> way{schedule_.rank_of_stage[needs->stage], rank};
        const Action& next = sent[way][taken[way]++];
        const bool forward = action.kind == ActionKind::kForward;
        report_.messages_in_order = report_.messages_in_order && next.stage == needs->stage &&
                                    next.micro_batch == needs->micro_batch &&
                                    (next.kind == ActionKind::kForward) == forward;
      }
    }
  }

  // Returns the stage that receives the message of the action; -1 if there is none.
  int successor(const Action& action) const {
    switch (action.kind) {
      case ActionKind::kForward:
        return action.stage + 1 < schedule_.stages ? action.stage + 1 : -1;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return action.stage - 1;
      case ActionKind::kBackwardWeight:
        break;
    }
    return -1;
  }

  size_t pair(const Action& action) const {
    return static_cast<size_t>(action.stage) * schedule_.micro_batches + action.micro_batch;
  }

  const Schedule& schedule_;
  Report report_;
};

}  // namespace

Report check(const Schedule& schedule) {
  return Checker(schedule).run();
}

void require_valid(const Schedule& schedule, const std::string& source) {
  const Report report = check(schedule);
  if (report.problems.empty()) {
    return;
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("{} is not a valid schedule:\n  {}", source, fmt::join(report.problems, "\n  ")),
      "run `lockstep schedule --file FILE` to draw it and list its problems");
}

}  // namespace lockstep::schedule
