// A pipeline schedule as data: one list of actions a rank. The executor runs the list, the
// simulator times the same list, the trace and `lockstep schedule` draw it.
//
// A model is cut into `stages` stages, each of them on one rank; a rank holds one stage or several
// ("virtual stages"). Messages are not listed, they follow from the actions: stage s sends its
// output to stage s + 1 after a forward, and the gradient of its input to stage s - 1 after a
// backward; between stages of one rank nothing is sent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::schedule {

enum class ActionKind : uint8_t {
  kForward,         // F
  kBackward,        // B: the gradients of input and weights together
  kBackwardInput,   // I: the gradient of the input; the weights' is left for later
  kBackwardWeight,  // W: the gradients of the weights, after I
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;        // of the whole model: 0 to stages - 1
  int micro_batch = 0;  // 0 to micro_batches - 1
  bool operator==(const Action&) const = default;
};

/// "2F0": the stage, the letter of the kind (F, B, I, W) and the micro-batch.
std::string action_text(const Action& action);
char action_letter(ActionKind kind);

enum class Kind {
  kNaive,        // one micro-batch is in the pipeline at a time
  kGpipe,        // all forwards, then all backwards (Huang et al., 2019)
  kOneFOneB,     // 1F1B (Narayanan et al., 2021, section 2.2.1; "PipeDream-flush")
  kInterleaved,  // 1F1B with virtual stages (Narayanan et al., 2021, section 2.2.2)
  kZbH1,         // zero bubble with 1F1B's memory (Qi et al., 2023, section 2.1)
  kZbH2,         // zero bubble with about twice that memory (section 2.2)
  kZbV,   // zero bubble in the shape of a V with 1F1B's memory (section 6); two stages a rank
  kFile,  // read from a file
};

/// "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v": what `parallel.schedule`
/// takes.
std::string_view kind_name(Kind kind);
/// Throws (config) with the nearest name where there is none of this name.
Kind parse_kind(std::string_view name);

struct Schedule {
  Kind kind = Kind::kOneFOneB;
  int ranks = 1;
  int stages = 1;
  int micro_batches = 1;
  std::vector<int> rank_of_stage;            // [stages]
  std::vector<std::vector<Action>> actions;  // [ranks], in the order in which the rank runs them
  /// The claim about memory, [ranks]: the most (stage, micro-batch) pairs of which a rank holds
  /// activations at a time, from the start of the forward to the end of the backward that frees
  /// them (of W where the backward is split).
  std::vector<int> held_limit;

  /// The stages of a rank, ascending.
  std::vector<int> stages_of(int rank) const;
  /// Stages a rank, of the rank that has the most.
  int virtual_stages() const;
};

struct Request {
  Kind kind = Kind::kOneFOneB;
  int ranks = 1;
  int micro_batches = 1;
  /// Stages a rank. Only `interleaved` takes any number; zb-v has 2, the others 1. 0: what the kind
  /// needs (2).
  int virtual_stages = 0;
};

/// The schedule of a kind; a pure function. Any number of micro-batches goes with any number of
/// ranks. Throws (config) for sizes below 1, virtual stages that the kind does not have, and more
/// than 2^24 actions.
Schedule make_schedule(const Request& request);

/// The bubble of the published formula, as a share of the whole time, when every stage takes the
/// same time and messages take none: idle / (idle + work). `weight_share`: T_W / (T_F + T_I + T_W);
/// times are of a whole rank. For zb-h2 and zb-v it is that of the paper, where a rank's optimizer
/// step does not wait for the others.
double formula_bubble(const Request& request, double forward, double input, double weight);

}  // namespace lockstep::schedule
