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

/// "2F0": the stage, the letter of the kind (F, B, I or W) and the micro-batch.
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

/// "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2" or "zb-v": the values of
/// `parallel.schedule`.
std::string_view kind_name(Kind kind);
/// Parses the name of a kind. Throws Error (config) with the nearest name if it is unknown.
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
  /// backward, or of W if the backward is split.
  std::vector<int> held_limit;

  /// Stages of a rank, in ascending order.
  std::vector<int> stages_of(int rank) const;
  /// Largest number of stages on one rank.
  int virtual_stages() const;
};

struct Request {
  Kind kind = Kind::kOneFOneB;
  int ranks = 1;
  int micro_batches = 1;
  /// Stages per rank. Only `interleaved` supports any number; zb-v has 2 and the other kinds have
  /// 1. 0: the kind's default (2).
  int virtual_stages = 0;
};

/// Builds the schedule of a kind; a pure function. Every number of micro-batches works with every
/// number of ranks. Throws Error (config) for sizes below 1, unsupported numbers of virtual stages
/// and more than 2^24 actions.
Schedule make_schedule(const Request& request);

/// Bubble according to the published formula, as a share of the total time: idle / (idle + work).
/// Assumes equal times for all stages and free messages. `weight_share` is T_W / (T_F + T_I + T_W),
/// and the times are those of a whole rank. For zb-h2 and zb-v it is the paper's bubble, in which a
/// rank's optimizer step does not wait for the other ranks.
double formula_bubble(const Request& request, double forward, double input, double weight);

}  // namespace lockstep::schedule
