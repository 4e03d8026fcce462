// Unlearning: objectives and data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "config/tasks.h"
#include "data/loader.h"
#include "data/questions.h"
#include "model/model_config.h"
#include "nn/forward_context.h"
#include "objective/objective.h"
#include "text/tokenizer.h"

namespace lockstep::train {

using config::keeps_rows;
using config::needs_distributions;
using config::rows_of_unlearning;
using config::unlearns;

/// Returns the objective that the section configures, with open-unlearning's formulas.
objective::ObjectivePointer unlearning_objective(const config::UnlearningSection& section);
/// For methods that truncate the model at a layer (RMU): returns the head and adds the frozen
/// parameters and the layers with adapters to `config`. Returns an empty optional for other
/// methods. Throws Error (kConfig) if the layer or the parameters do not exist.
std::optional<model::HeadSpec> end_at_layer(
    config::Config& config, const model::ModelConfig& model);
/// Returns RMU's target hidden state for forget rows: float32 [C] with norm steering_coeff. The
/// elements are drawn uniformly from [0, 1) with the seed, then scaled.
at::Tensor steering_target(const config::Config& config, int64_t hidden_size);
/// Returns true if the method needs the scores of rows under the initial model.
bool needs_row_scores(const config::UnlearningSection& section);

/// Returns the question format that the section configures. Throws like data::chat_form.
data::QuestionTemplate question_template(
    const config::UnlearningSection& section, const text::Tokenizer& tokenizer);

struct UnlearningCounts {
  int64_t forget = 0, alternates = 0, retain = 0;
  int64_t without_answer = 0;  // rows whose prompt leaves no room for an answer
  int64_t cut = 0;             // other truncated rows
  std::string text(const config::UnlearningSection& section) const;
};

/// Reads and encodes the section's files without writing files, for a dry run. Throws Error (kData,
/// kConfig) like data::read_questions and data::encode_question.
UnlearningCounts count_unlearning(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length);

struct UnlearningRows {
  std::shared_ptr<const data::SequenceView> train;
  /// Rows of the same file that the reference model scores, one at a time. Null if none are scored.
  std::shared_ptr<const data::SequenceView> scored;
};

/// Opens the unlearning data. Rank 0 writes the token file; all ranks open it. Must be called on
/// every rank.
UnlearningRows open_unlearning_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator);

/// Marks the positions whose targets are not tokens:
///
/// - CEU: the model's own distribution over the other tokens, at forget positions with a target
/// - retain_loss=KL: its distributions at all retain positions except padding
/// - UNDIAL: its distributions, with a lowered logit, at forget positions that have a target
/// - RMU: its hidden states
///
/// For PDU, marks the positions whose logits should be uniform. `lengths` are the lengths of the
/// rows. With compatibility=upstream, padding is marked as well, up to the longest row of the same
/// kind.
void mark_distributions(
    nn::ForwardInputs& inputs,
    std::span<const int64_t> lengths,
    const config::UnlearningSection& section,
    int64_t vocabulary);

/// Weight of the retain loss as a constraint (PDU), updated by dual ascent. It grows while the
/// retain loss is above retain_loss_eps and falls towards 0 while it is below.
class RetainWeight {
 public:
  explicit RetainWeight(const config::UnlearningSection& section)
      : section_(section),
        value_(config::alpha_of(section)) {}

  double value() const { return value_; }
  void set_value(double value) { value_ = value; }
  /// Sets the weights of the rows.
  void mark(nn::Targets& targets) const;
  /// Returns true if the weight is updated after each step, or after each epoch. `epochs` is the
  /// number of completed epochs.
  bool follows_steps(int64_t epochs) const { return follows(epochs, "step"); }
  bool follows_epochs(int64_t epochs) const { return follows(epochs, "epoch"); }
  /// Updates the weight from the retain loss. Ignores NaN and Inf.
  void follow(double retain_loss);

 private:
  bool follows(int64_t epochs, std::string_view upon) const {
    return section_.primal_dual && section_.dual_update_upon == upon &&
           epochs >= section_.dual_warmup_epochs;
  }

  config::UnlearningSection section_;
  double value_;
};

}  // namespace lockstep::train
