#include "objective/run_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"

namespace lockstep::objective {
namespace {

/// One micro-batch. It may be run again as long as model and objective are there.
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
      weights = weigh_rows(at::zeros_like(targets.counts)).weights;  // as at any scores
    }
    const Tensor sum = loss(hidden, vocabulary, weights);
    return {sum, sum.detach().to(at::kDouble).view({1})};
  }

 private:
  /// A row's target is one rank's, which weighs it alone: gradients need no other's logits.
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
  /// The logits at each row's target, 0 where it is not here: float32 [B, K]. Products are float32
  /// whatever the type of the weights.
  Tensor class_logits(const Tensor& hidden, const Tensor& vocabulary) const {
    const auto [state, is_missing] = states_at_targets(hidden);
    const Tensor logits = at::linear(state.squeeze(1).to(at::kFloat), vocabulary.to(at::kFloat));
    return logits.masked_fill(is_missing, 0);
  }
  /// The likeliest token at each row's target, float64 [B], the same on all ranks that have a part
  /// of the rows.
  Tensor next_tokens(const Tensor& hidden, const Tensor& vocabulary) const {
    const auto [state, is_missing] = states_at_targets(hidden);
    Tensor tokens = model.head->logits(state, vocabulary).argmax(-1).to(at::kDouble);  // [B, 1]
    tokens = tokens.masked_fill(is_missing, 0).squeeze(1);
    if (parts.sum) {
      parts.sum(tokens);
    }
    return tokens;
  }
  /// The states of rows at their targets, [B, 1, C], and which rows' are not here, bool [B, 1].
  std::pair<Tensor, Tensor> states_at_targets(const Tensor& hidden) const {
    const Tensor is_here = targets.tokens.ne(ops::kIgnoredTarget);            // [B, T]
    const Tensor position = is_here.to(at::kInt).argmax(1).view({-1, 1, 1});  // 0: none is here
    return {
        hidden.gather(1, position.to(hidden.device()).expand({-1, 1, hidden.size(2)})),
        is_here.any(1, true).logical_not().to(hidden.device())};
  }
  /// Of rows that are judged together, wherever they are read; those that are not here have no
  /// gradient here.
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
  /// float64 [B], or [B, 2] where prompts are told apart: the answer's, the prompt's.
  Tensor sums_of_rows(const Tensor& tokens) const {
    if (!targets.prompts.defined()) {
      return tokens.sum(1, false, at::kDouble);
    }
    const auto sum = [&](const Tensor& part) { return part.sum(1, false, at::kDouble); };
    return at::stack(
        {sum(tokens.masked_fill(targets.prompts, 0)),
         sum(tokens.masked_fill(targets.prompts.logical_not(), 0))},
        1);
  }
  Weighing weigh_rows(const Tensor& rows) const {
    Weighing weighing = objective.weigh({rows, {}}, targets, step);
    if (!weighing.weights.defined()) {
      return weighing;
    }
    // Of each of the row's tokens.
    weighing.weights = targets.prompts.defined() ? at::where(
                                                       targets.prompts,
                                                       weighing.weights.narrow(1, 1, 1),
                                                       weighing.weights.narrow(1, 0, 1))
                                                 : weighing.weights.unsqueeze(1);
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
    throw Error(ErrorKind::kInternal, "an objective needs targets");
  }
  return model.run_head(inputs, context, HeadPass{model, objective, targets, step, parts});
}

}  // namespace lockstep::objective
