// Unlearning: its objective, and its data.
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

/// What the section names, by open-unlearning's formulas.
objective::ObjectivePointer unlearning_objective(const config::UnlearningSection& section);
/// Of a method that ends at a layer (RMU): the head, and in `config` what else is frozen, and where
/// adapters end. Nothing of other methods. Error (kConfig): no such layer, or parameters.
std::optional<model::HeadSpec> end_at_layer(
    config::Config& config, const model::ModelConfig& model);
/// RMU's target state of rows to be forgotten: float32 [C], of length steering_coeff, in a
/// direction whose numbers are drawn from [0, 1) by the seed.
at::Tensor steering_target(const config::Config& config, int64_t hidden_size);
/// Whether rows are compared to their scores by the model as it was.
bool needs_row_scores(const config::UnlearningSection& section);

/// How the section writes questions. Error as data::chat_form.
data::QuestionTemplate question_template(
    const config::UnlearningSection& section, const text::Tokenizer& tokenizer);

struct UnlearningCounts {
  int64_t forget = 0, alternates = 0, retain = 0;
  int64_t without_answer = 0;  // rows whose prompt leaves no room for an answer
  int64_t cut = 0;             // other rows that are cut
  std::string text(const config::UnlearningSection& section) const;
};

/// Reads and encodes what the section names, without writing anything: for a dry run. Error (kData,
/// kConfig) as data::read_questions, data::encode_question.
UnlearningCounts count_unlearning(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length);

struct UnlearningRows {
  std::shared_ptr<const data::SequenceView> train;
  /// Of the same file, one by one: those that a reference scores. Null: none are.
  std::shared_ptr<const data::SequenceView> scored;
};

/// The same, written by rank 0 and opened by all. Every rank must call.
UnlearningRows open_unlearning_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator);

/// Says which positions are to have the reference's distributions: of rows to be kept all that are
/// no padding (retain_loss=KL), of those to be forgotten those with a target (UNDIAL), whose logit
/// is lowered; of RMU which tokens are to have the reference's states, of PDU which positions are
/// to have level logits. `lengths` are the rows'. With compatibility=upstream padding counts as far
/// as the longest row of either kind.
void mark_distributions(
    nn::ForwardInputs& inputs,
    std::span<const int64_t> lengths,
    const config::UnlearningSection& section,
    int64_t vocabulary);

/// The weight of what is to be kept where that is a constraint (PDU), by dual ascent: it grows
/// while their loss is above retain_loss_eps, and falls to 0 while it is below.
class RetainWeight {
 public:
  explicit RetainWeight(const config::UnlearningSection& section)
      : section_(section),
        value_(config::alpha_of(section)) {}

  double value() const { return value_; }
  void set_value(double value) { value_ = value; }
  /// Sets the rows' weights.
  void mark(nn::Targets& targets) const;
  /// Whether a loss after so many epochs changes it: of a step, or at an epoch's end.
  bool follows_steps(int64_t epochs) const { return follows(epochs, "step"); }
  bool follows_epochs(int64_t epochs) const { return follows(epochs, "epoch"); }
  /// A loss that is no number changes nothing.
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
