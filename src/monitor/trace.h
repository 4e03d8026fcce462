// A step's timeline as a Chrome or Perfetto trace, and its summary: what every rank did when.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::monitor {

/// Times are seconds of one clock for all ranks.
struct TraceEvent {
  enum class Kind {
    kAction,         // of the pipeline: a micro-batch's forward or backward pass in a stage
    kStageWait,      // until what another stage sends is there
    kCommunication,  // from the call to the end of the wait for it
    kCopy,           // of offloaded state, likewise
    kOther,          // another part of the step
  };
  Kind kind = Kind::kOther;
  std::string name{};
  double begin = 0, end = 0;
  // Of communication and copies:
  std::string group{};     // of ranks; of copies none
  int64_t bytes = 0;       // of the tensor
  double waited_from = 0;  // from here to the end the rank stood still
};

struct RankTrace {
  int rank = 0;
  std::string label{};        // "pipeline 1, data 0, context 0, tensor 0"
  double begin = 0, end = 0;  // of the step
  std::vector<TraceEvent> events{};
};

/// For the way from rank to rank. from_text throws Error (internal) where it is not to_text's.
std::string to_text(const RankTrace& trace);
RankTrace from_text(const std::string& text);

/// The passes that a pipeline's schedule foresees: for the page of runs, which draws them beside
/// what was measured.
struct ForeseenPasses {
  std::vector<int> place;                       // on the pipeline, of each rank
  std::vector<std::vector<TraceEvent>> passes;  // by place; 0 is when the first one begins
};

/// What https://ui.perfetto.dev opens: a process a rank, in it a line for the actions, one for each
/// group's communication and one for copies, with bytes and bandwidth. What overlaps on a line gets
/// lines beside it. Time zero is the first rank's begin. What was foreseen is under "lockstep",
/// which other readers pass over.
std::string chrome_trace(std::span<const RankTrace> ranks, const ForeseenPasses& foreseen = {});

/// Of one rank, in seconds: step = compute + stage_waits + exposed + other.
struct TraceSummary {
  double step = 0;
  double compute = 0;      // in actions, but for what was waited for in them
  double stage_waits = 0;  // for what another stage sends
  double exposed = 0;      // waits for other communication and for copies
  double other = 0;        // the optimizer, the next batch, and what is not told apart
  /// Idle share of the pipeline's span, from the first action of any rank to the last's end.
  double bubble = 0;
};
std::vector<TraceSummary> summarize(std::span<const RankTrace> ranks);
/// The same as a table, a line a rank.
std::string summary_table(std::span<const RankTrace> ranks);

}  // namespace lockstep::monitor
