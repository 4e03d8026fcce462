// Timeline of one step over all ranks, as a Chrome or Perfetto trace, and its summary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::monitor {

/// Traced interval. Times are in seconds of a clock shared by all ranks.
struct TraceEvent {
  enum class Kind {
    kAction,         // pipeline action: forward or backward pass of a micro-batch in a stage
    kStageWait,      // waiting for data from another stage
    kCommunication,  // from the call to the end of its wait
    kCopy,           // copy of offloaded state, from the call to the end of its wait
    kOther,          // any other phase of the step
  };
  Kind kind = Kind::kOther;
  std::string name{};
  double begin = 0, end = 0;
  // for communication and copies:
  std::string group{};     // process group; empty for copies
  int64_t bytes = 0;       // size of the tensor
  double waited_from = 0;  // start of the blocking wait, which lasts until `end`
};

struct RankTrace {
  int rank = 0;
  std::string label{};        // "pipeline 1, data 0, context 0, tensor 0"
  double begin = 0, end = 0;  // bounds of the step
  std::vector<TraceEvent> events{};
};

/// Serialization between ranks. from_text() throws Error (internal) on malformed input.
std::string to_text(const RankTrace& trace);
RankTrace from_text(const std::string& text);

/// Forward and backward passes predicted by a pipeline schedule. The web page draws them next to
/// the measured ones.
struct ForeseenPasses {
  std::vector<int> place;  // pipeline position of each rank
  std::vector<std::vector<TraceEvent>>
      passes;  // by position; time 0 is the start of the first pass
};

/// Returns a trace for https://ui.perfetto.dev: one process per rank, with lanes for the actions,
/// for each group's communication and for copies, including bytes and bandwidth. Overlapping events
/// get additional lanes. Time zero is the earliest start of any rank. Predicted passes are stored
/// under "lockstep", which other readers ignore.
std::string chrome_trace(std::span<const RankTrace> ranks, const ForeseenPasses& foreseen = {});

/// Time breakdown of one rank in seconds: step = compute + stage_waits + exposed + other.
struct TraceSummary {
  double step = 0;
  double compute = 0;      // in actions, excluding waits
  double stage_waits = 0;  // waiting for data from other stages
  double exposed = 0;      // waiting for other communication and for copies (not overlapped)
  double other = 0;        // the optimizer, the next batch, and untraced time
  /// Idle fraction of the pipeline's span, from the first action of any rank to the end of the last
  /// one.
  double bubble = 0;
};
std::vector<TraceSummary> summarize(std::span<const RankTrace> ranks);
/// Formats the summaries as a table with one line per rank.
std::string summary_table(std::span<const RankTrace> ranks);

}  // namespace lockstep::monitor
