// Runs a model's head under an objective, over sharded rows and parameters.
#include "objective/run_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"

namespace lockstep::objective {
namespace {

/// Head pass of one micro-batch. It can be repeated (recomputation) while the model and the
/// objective exist.
struct HeadPass {
  const nn::LanguageModel& model;
  const Objective& objective;
  nn::Targets targets;
  Counts step;
  RowParts parts;

  nn::Tensors operator()(const Tensor& hidden, const Tensor& vocabulary) const {
    const bool trains = at::GradMode::is_enabled();
    const Needs needs = objective.needs();
    if (needs == Needs::kHeadStates) {
      return {objective.measure({hidden, vocabulary}, targets, step)};
    }
    if (needs == Needs::kNextToken) {
      return {objective.measure({next_tokens(hidden, vocabulary), {}}, targets, step)};
    }
    if (needs == Needs::kClassScores) {
      return run_classifier(hidden, vocabulary, trains);
    }
    if (needs == Needs::kRowLogits) {
      return judge_rows(class_logits(hidden, vocabulary), trains);
    }
    if (!trains || needs == Needs::kTokenScores || needs == Needs::kRowScores) {
      const Weighing weighing = weigh(model.head->scores(hidden, vocabulary, targets));
      return trains ? nn::Tensors{loss(hidden, vocabulary, weighing.weights), weighing.sums}
                    : nn::Tensors{weighing.sums};
    }
    Tensor weights;
    if (needs == Needs::kTargets) {
      // The weights do not depend on the scores.
      weights = weigh_rows(at::zeros_like(targets.counts)).weights;
    }
    const Tensor sum = loss(hidden, vocabulary, weights);
    const Tensor first = sum.detach().to(at::kDouble).view({1});
    return needs == Needs::kNothing && model.config().head.classifies()
               ? nn::Tensors{sum, at::cat({first, rows_told(hidden, vocabulary)})}
               : nn::Tensors{sum, first};
  }

 private:
  /// Only the rank that holds the target of a row weights the row, so that gradients do not require
  /// the logits of other ranks.
  nn::Tensors run_classifier(const Tensor& hidden, const Tensor& vocabulary, bool trains) const {
    const Tensor logits = class_logits(hidden, vocabulary);
    if (!trains) {
      if (parts.sum) {
        parts.sum(logits);
      }
      return {objective.measure({logits, {}}, targets, step)};
    }
    const Weighing weighing = objective.weigh({logits, {}}, targets, step);
    return {(logits * weighing.weights).sum().neg(), weighing.sums};
  }
  /// Returns the number of rows whose target is on this rank, and the number of correctly
  /// classified rows among them: float64 [2].
  Tensor rows_told(const Tensor& hidden, const Tensor& vocabulary) const {
    const at::NoGradGuard no_gradient;
    const auto [place, is_missing] = targets.first_targets();
    const Tensor classes = targets.tokens.flatten().index_select(0, place);
    const Tensor is_here = is_missing.logical_not().to(hidden.device());
    const Tensor is_right =
        class_logits(hidden, vocabulary).argmax(1).eq(classes.to(hidden.device()));
    return at::stack({is_here, is_here.logical_and(is_right)}).sum(1, false, at::kDouble);
  }
  /// Returns the logits at each row's target, float32 [N, K]; 0 if the target is on another rank.
  /// The products use float32 for all weight types.
  Tensor class_logits(const Tensor& hidden, const Tensor& vocabulary) const {
    const auto [state, is_missing] = states_at_targets(hidden);
    const Tensor logits = at::linear(state.to(at::kFloat), vocabulary.to(at::kFloat));
    return logits.masked_fill(is_missing, 0);
  }
  /// Returns the most likely token at each row's target, float64 [N]. The result is the same on all
  /// ranks that hold slices of the rows.
  Tensor next_tokens(const Tensor& hidden, const Tensor& vocabulary) const {
    const auto [state, is_missing] = states_at_targets(hidden);
    Tensor tokens = model.head->logits(state.unsqueeze(1), vocabulary).argmax(-1).to(at::kDouble);
    tokens = tokens.masked_fill(is_missing, 0).squeeze(1);
    if (parts.sum) {
      parts.sum(tokens);
    }
    return tokens;
  }
  /// Returns the states at the rows' targets, [N, C], and a mask of the rows whose target is on
  /// another rank, bool [N, 1].
  std::pair<Tensor, Tensor> states_at_targets(const Tensor& hidden) const {
    const auto [place, is_missing] = targets.first_targets();
    return {
        hidden.flatten(0, 1).index_select(0, place.to(hidden.device())),
        is_missing.unsqueeze(1).to(hidden.device())};
  }
  /// Computes objectives that compare rows with each other. Runs on every rank; only rows whose
  /// target is on this rank have a gradient here.
  nn::Tensors judge_rows(const Tensor& logits, bool trains) const {
    const Tensor scores = logits.detach().clone();
    if (parts.sum) {
      parts.sum(scores);
    }
    Weighing weighing = objective.weigh({scores, {}}, targets, step);
    if (!parts.is_first) {
      weighing.sums.zero_();
    }
    return trains ? nn::Tensors{-(weighing.weights * logits).sum(), weighing.sums}
                  : nn::Tensors{weighing.sums};
  }
  Weighing weigh(const nn::Scores& scores) const {
    if (objective.needs() == Needs::kNothing || objective.needs() == Needs::kTokenScores) {
      return objective.weigh(scores, targets, step);
    }
    const Tensor rows = sums_of_rows(scores.log_likelihoods);
    if (parts.sum) {
      parts.sum(rows);
    }
    Weighing weighing = weigh_rows(rows);
    if (!parts.is_first) {
      weighing.sums.zero_();
    }
    return weighing;
  }
  /// Returns sums over the tokens of each row: float64 [N], or [N, 2] (answer, prompt) if prompts
  /// are marked.
  Tensor sums_of_rows(const Tensor& tokens) const {
    if (!targets.prompts.defined()) {
      return targets.sums(tokens);
    }
    return at::stack(
        {targets.sums(tokens.masked_fill(targets.prompts, 0)),
         targets.sums(tokens.masked_fill(targets.prompts.logical_not(), 0))},
        1);
  }
  Weighing weigh_rows(const Tensor& rows) const {
    Weighing weighing = objective.weigh({rows, {}}, targets, step);
    if (!weighing.weights.defined()) {
      return weighing;
    }
    // The weight of each token is that of its row.
    const Tensor& of_rows = weighing.weights;
    weighing.weights = targets.prompts.defined() ? at::where(
                                                       targets.prompts,
                                                       targets.to_tokens(of_rows.select(1, 1)),
                                                       targets.to_tokens(of_rows.select(1, 0)))
                                                 : targets.to_tokens(of_rows);
    return weighing;
  }
  Tensor loss(const Tensor& hidden, const Tensor& vocabulary, const Tensor& weights) const {
    return model.head->loss(hidden, vocabulary, targets, weights, objective.label_smoothing());
  }
};

}  // namespace

nn::Tensors run_head(
    const nn::LanguageModel& model,
    const nn::Tensors& inputs,
    const nn::Context& context,
    const Objective& objective,
    const Counts& step,
    const RowParts& parts) {
  const nn::Targets& targets = context->inputs().targets;
  if (!targets.defined()) {
    throw Error(ErrorKind::kInternal, "an objective requires targets");
  }
  return model.run_head(inputs, context, HeadPass{model, objective, targets, step, parts});
}

}  // namespace lockstep::objective
