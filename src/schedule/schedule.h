// Pipeline schedule as data: one list of actions per rank. The executor runs the list, the
// simulator times it, and the trace and `lockstep schedule` draw it.
//
// A model is divided into `stages` stages. Each stage is on one rank, and a rank has one or more
// stages ("virtual stages"). Messages are not listed because they follow from the actions: stage s
// sends its output to stage s + 1 after a forward, and its input gradient to stage s - 1 after a
// backward. Stages of the same rank exchange no messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::schedule {

enum class ActionKind : uint8_t {
  kForward,         // F
  kBackward,        // B: gradients of input and weights together
  kBackwardInput,   // I: input gradient; the weight gradient is deferred
  kBackwardWeight,  // W: weight gradient, after I
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;        // index in the whole model: 0 to stages - 1
  int micro_batch = 0;  // 0 to micro_batches - 1
  bool operator==(const Action&) const = default;
};

/// Returns, for example, "2F0": the stage, the letter of the kind (F, B, I or W), and the
/// micro-batch.
std::string action_text(const Action& action);
char action_letter(ActionKind kind);

enum class Kind {
  kNaive,        // one micro-batch in the pipeline at a time
  kGpipe,        // all forwards, then all backwards (Huang et al., 2019)
  kOneFOneB,     // 1F1B (Narayanan et al., 2021, section 2.2.1; "PipeDream-flush")
  kInterleaved,  // 1F1B with virtual stages (Narayanan et al., 2021, section 2.2.2)
  kZbH1,         // zero bubble with the memory of 1F1B (Qi et al., 2023, section 2.1)
  kZbH2,         // zero bubble with about twice that memory (section 2.2)
  kZbV,          // V-shaped zero bubble with the memory of 1F1B (section 6); two stages per rank
  kFile,         // read from a file
};

/// Returns "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2" or "zb-v". These are the
/// values of `parallel.schedule`.
std::string_view kind_name(Kind kind);
/// Parses the name of a kind. If it is unknown, throws Error (config) that suggests the nearest
/// name.
Kind parse_kind(std::string_view name);

struct Schedule {
  Kind kind = Kind::kOneFOneB;
  int ranks = 1;
  int stages = 1;
  int micro_batches = 1;
  std::vector<int> rank_of_stage;            // [stages]
  std::vector<std::vector<Action>> actions;  // [ranks], in execution order
  /// Memory limit, [ranks]: the maximum number of (stage, micro-batch) pairs whose activations a
  /// rank holds at a time. Activations are held from the start of the forward to the end of the
  /// backward, or to the end of W if the backward is split.
  std::vector<int> held_limit;

  /// Returns the stages of a rank in ascending order.
  std::vector<int> stages_of(int rank) const;
  /// Returns the largest number of stages on one rank.
  int virtual_stages() const;
};

struct Request {
  Kind kind = Kind::kOneFOneB;
  int ranks = 1;
  int micro_batches = 1;
  /// Number of stages per rank. Only `interleaved` supports any number; zb-v has 2, and the other
  /// kinds have 1. 0: the default of the kind (2 for `interleaved`).
  int virtual_stages = 0;
};

/// Builds the schedule of a kind. This is a pure function. Any number of micro-batches can be
/// combined with any number of ranks. Throws Error (config) if a size is below 1, if the number of
/// virtual stages is not supported, or if there are more than 2^24 actions.
Schedule make_schedule(const Request& request);

/// Returns the bubble according to the published formula, as a fraction of the total time: idle /
/// (idle + work). Assumes equal times for all stages, and messages that take no time. The times are
/// those of a whole rank. For zb-h2 and zb-v, this is the bubble as defined in the paper, where the
/// optimizer step of a rank does not wait for other ranks.
double formula_bubble(const Request& request, double forward, double input, double weight);

}  // namespace lockstep::schedule
