// Timeline of one step on all ranks, exported as a Chrome or Perfetto trace, and its summary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::monitor {

/// Traced interval. Times are in seconds of a clock that all ranks share.
struct TraceEvent {
  enum class Kind {
    kAction,         // pipeline action: forward or backward pass of a micro-batch in a stage
    kStageWait,      // waiting for data from another stage
    kCommunication,  // from the call to the end of the wait for it
    kCopy,           // of offloaded state, from the call to the end of the wait for it
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

/// Convert a trace to and from text, to send it between ranks. from_text() throws Error (internal)
/// if the text is malformed.
std::string to_text(const RankTrace& trace);
RankTrace from_text(const std::string& text);

/// Forward and backward passes that a pipeline schedule predicts. The web page shows them next to
/// the measured ones.
struct ForeseenPasses {
  std::vector<int> place;  // pipeline position of each rank
  std::vector<std::vector<TraceEvent>>
      passes;  // by position; time 0 is the start of the first pass
};

/// Returns a trace for https://ui.perfetto.dev. Each rank is a process, with lanes for actions, for
/// the communication of each group and for copies, including bytes and bandwidth. Overlapping
/// events are shown in additional lanes. Time 0 is the earliest start of any rank. Predicted passes
/// are stored under "lockstep", which other readers ignore.
std::string chrome_trace(std::span<const RankTrace> ranks, const ForeseenPasses& foreseen = {});

/// Breakdown of a rank's step in seconds. step = compute + stage_waits + exposed + other.
struct TraceSummary {
  double step = 0;
  double compute = 0;      // in actions, without waits
  double stage_waits = 0;  // waiting for data from other stages
  double exposed = 0;      // waiting for other communication and copies that are not overlapped
  double other = 0;        // optimizer, next batch, and untraced time
  /// Fraction of time for which the rank is idle, between the first action of any rank and the end
  /// of the last one.
  double bubble = 0;
};
std::vector<TraceSummary> summarize(std::span<const RankTrace> ranks);
/// Formats the summaries as a table with one line per rank.
std::string summary_table(std::span<const RankTrace> ranks);

}  // namespace lockstep::monitor
