// Builds the schedule of each kind. Dependencies never cross micro-batches, so a schedule stays
// valid if all actions of a micro-batch are removed. Patterns that require a multiple of some
// number of micro-batches are built for that multiple and truncated.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "schedule/schedule.h"

namespace lockstep::schedule {

namespace {

using enum ActionKind;

constexpr int64_t kMaxActions = int64_t{1} << 24;

// Appends actions to one rank's list and counts the actions of each kind and stage.
class Writer {
 public:
  Writer(std::vector<Action>& out, int stages, int micro_batches)
      : out_(out),
        done_(static_cast<size_t>(stages) * 4, 0),
        micro_batches_(micro_batches) {}

  int done(ActionKind kind, int stage) const { return done_[index(kind, stage)]; }
  bool more(ActionKind kind, int stage) const { return done(kind, stage) < micro_batches_; }
  void next(ActionKind kind, int stage) {
    if (more(kind, stage)) {
      out_.push_back({kind, stage, done_[index(kind, stage)]++});
    }
  }

 private:
  static size_t index(ActionKind kind, int stage) {
    return static_cast<size_t>(stage) * 4 + static_cast<size_t>(kind);
  }
  std::vector<Action>& out_;
  std::vector<int> done_;
  int micro_batches_;
};

void write_naive(Schedule& schedule, int rank) {
  for (int m = 0; m < schedule.micro_batches; ++m) {
    schedule.actions[rank].push_back({kForward, rank, m});
    schedule.actions[rank].push_back({kBackward, rank, m});
  }
  schedule.held_limit[rank] = 1;
}

// Backwards run in the order of the forwards, so that gradient sums are bit-identical to those of
// 1F1B.
void write_gpipe(Schedule& schedule, int rank) {
  for (const ActionKind kind : {kForward, kBackward}) {
    for (int m = 0; m < schedule.micro_batches; ++m) {
      schedule.actions[rank].push_back({kind, rank, m});
    }
  }
  schedule.held_limit[rank] = schedule.micro_batches;
}

void write_one_f_one_b(Schedule& schedule, int rank) {
  Writer writer(schedule.actions[rank], schedule.stages, schedule.micro_batches);
  const int warmup = std::min(schedule.ranks - rank - 1, schedule.micro_batches);
  for (int i = 0; i < warmup; ++i) {
    writer.next(kForward, rank);
  }
  while (writer.more(kBackward, rank)) {
    writer.next(kForward, rank);
    writer.next(kBackward, rank);
  }
  schedule.held_limit[rank] = std::min(schedule.ranks - rank, schedule.micro_batches);
}

// Micro-batches run in groups of `ranks`: a group passes through all virtual stages of a rank
// before the next group starts. `position` counts the forwards (or backwards) of a rank in the
// untruncated schedule.
Action interleaved_action(const Schedule& schedule, int rank, ActionKind kind, int position) {
  const int ranks = schedule.ranks;
  const int chunks = schedule.stages / ranks;
  const int group = position / (ranks * chunks);
  int chunk = position / ranks % chunks;
  if (kind == kBackward) {
    chunk = chunks - 1 - chunk;
  }
  return {kind, chunk * ranks + rank, group * ranks + position % ranks};
}

void write_interleaved(Schedule& schedule, int rank) {
  const int ranks = schedule.ranks;
  const int chunks = schedule.stages / ranks;
  const int round = (schedule.micro_batches + ranks - 1) / ranks * ranks;
  const int total = round * chunks;
  const auto write = [&](ActionKind kind, int position) {
    const Action action = interleaved_action(schedule, rank, kind, position);
    if (action.micro_batch < schedule.micro_batches) {
      schedule.actions[rank].push_back(action);
    }
  };
  const int warmup = std::min((ranks - rank - 1) * 2 + (chunks - 1) * ranks, total);
  for (int i = 0; i < warmup; ++i) {
    write(kForward, i);
  }
  for (int i = 0; i < total; ++i) {
    if (warmup + i < total) {
      write(kForward, warmup + i);
    }
    write(kBackward, i);
  }
  schedule.held_limit[rank] = std::min(warmup + 1, schedule.micro_batches * chunks);
}

// Builds zb-h1 and zb-h2, which have the same structure: some warm-up forwards, then each input
// gradient as early as possible and each weight gradient late enough that all ranks hold the same
// number of micro-batches (Qi et al., 2023, figures 3 and 4).
void write_zero_bubble(Schedule& schedule, int rank, int warmup, int deferred) {
  Writer writer(schedule.actions[rank], schedule.stages, schedule.micro_batches);
  const auto pending = [&] {
    return writer.done(kBackwardInput, rank) - writer.done(kBackwardWeight, rank);
  };
  for (int i = 0; i < warmup; ++i) {
    writer.next(kForward, rank);
  }
  while (writer.more(kBackwardInput, rank)) {
    const bool steady = writer.more(kForward, rank);
    writer.next(kBackwardInput, rank);
    // After the last forward, weight gradients fill every gap before the next input gradient.
    if (pending() > deferred || !steady) {
      writer.next(kBackwardWeight, rank);
    }
    writer.next(kForward, rank);
  }
  while (writer.more(kBackwardWeight, rank)) {
    writer.next(kBackwardWeight, rank);
  }
  schedule.held_limit[rank] = std::min(warmup + deferred, schedule.micro_batches);
}

// zb-v: rank r has stage r on the way down the V and stage 2p - 1 - r on the way up (Qi et al.,
// 2023, section 6 and figure 8). The last rank therefore turns around immediately, and the first
// rank starts and finishes each micro-batch.
void write_zb_v(Schedule& schedule, int rank) {
  const int ranks = schedule.ranks;
  const int down = rank;
  const int up = schedule.stages - 1 - rank;
  const int round = std::max(schedule.micro_batches, 2 * ranks - 1);
  std::vector<Action> actions;
  Writer writer(actions, schedule.stages, round);
  const auto repeat = [](int times, const std::function<void()>& body) {
    for (int i = 0; i < times; ++i) {
      body();
    }
  };
  const auto both = [&](int stage) {
    writer.next(kBackwardInput, stage);
    writer.next(kBackwardWeight, stage);
  };
  repeat(2 * (ranks - rank) - 1, [&] { writer.next(kForward, down); });
  repeat(rank, [&] {
    writer.next(kForward, up);
    writer.next(kForward, down);
  });
  repeat(ranks - rank, [&] {
    writer.next(kForward, up);
    both(up);
  });
  while (writer.more(kForward, up)) {
    writer.next(kForward, down);
    both(down);
    writer.next(kForward, up);
    both(up);
  }
  repeat(rank, [&] {
    writer.next(kBackwardInput, down);
    writer.next(kBackwardInput, up);
  });
  repeat(ranks - rank, [&] {
    writer.next(kBackwardInput, down);
    writer.next(kBackwardWeight, down);
  });
  repeat(round, [&] { writer.next(kBackwardWeight, up); });
  repeat(round, [&] { writer.next(kBackwardWeight, down); });
  for (const Action& action : actions) {
    if (action.micro_batch < schedule.micro_batches) {
      schedule.actions[rank].push_back(action);
    }
  }
  schedule.held_limit[rank] = std::min(2 * ranks, 2 * schedule.micro_batches);
}

void write_rank(Schedule& schedule, int rank) {
  const int ranks = schedule.ranks;
  switch (schedule.kind) {
    case Kind::kNaive:
      return write_naive(schedule, rank);
    case Kind::kGpipe:
      return write_gpipe(schedule, rank);
    case Kind::kOneFOneB:
      return write_one_f_one_b(schedule, rank);
    case Kind::kInterleaved:
      return write_interleaved(schedule, rank);
    case Kind::kZbH1:
      return write_zero_bubble(schedule, rank, ranks - rank, rank);
    case Kind::kZbH2:
      return write_zero_bubble(schedule, rank, 2 * (ranks - rank) - 1, 2 * rank);
    case Kind::kZbV:
      return write_zb_v(schedule, rank);
    case Kind::kFile:
      break;
  }
}

int chunks_of(const Request& request) {
  const bool many = request.kind == Kind::kInterleaved || request.kind == Kind::kZbV;
  const int chunks = request.virtual_stages == 0 ? (many ? 2 : 1) : request.virtual_stages;
  if (request.kind == Kind::kZbV && chunks != 2) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("zb-v requires 2 virtual stages per rank, not {}", chunks),
        "set parallel.virtual_stages=2 or parallel.schedule=interleaved");
  }
  if (!many && chunks != 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} requires 1 virtual stage per rank, not {}", kind_name(request.kind), chunks),
        fmt::format(
            "set parallel.schedule=interleaved for {} virtual stages, or parallel.virtual_stages=1",
            std::max(chunks, 2)));
  }
  return chunks;
}

}  // namespace

Schedule make_schedule(const Request& request) {
  if (request.kind == Kind::kFile) {
    throw Error(ErrorKind::kInternal, "a schedule of kind file is read, not generated");
  }
  if (request.ranks < 1 || request.micro_batches < 1 || request.virtual_stages < 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "schedule with {} pipeline ranks, {} micro-batches and {} virtual stages: each must be "
            "at least 1",
            request.ranks,
            request.micro_batches,
            request.virtual_stages));
  }
  const int64_t chunks = chunks_of(request);
  const int64_t count = 3 * chunks * request.ranks * std::max(request.micro_batches, request.ranks);
  if (request.ranks > kMaxActions || request.micro_batches > kMaxActions ||
      chunks > kMaxActions / 64 || count > kMaxActions) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "schedule with {} ranks, {} micro-batches and {} virtual stages has more than {} "
            "actions",
            request.ranks,
            request.micro_batches,
            chunks,
            kMaxActions),
        "use fewer, larger micro-batches");
  }
  Schedule schedule;
  schedule.kind = request.kind;
  schedule.ranks = request.ranks;
  schedule.stages = request.ranks * static_cast<int>(chunks);
  schedule.micro_batches = request.micro_batches;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const bool up = request.kind == Kind::kZbV && stage >= request.ranks;
    schedule.rank_of_stage.push_back(up ? schedule.stages - 1 - stage : stage % request.ranks);
  }
  schedule.actions.resize(request.ranks);
  schedule.held_limit.resize(request.ranks);
  for (int rank = 0; rank < request.ranks; ++rank) {
    write_rank(schedule, rank);
  }
  return schedule;
}

}  // namespace lockstep::schedule
