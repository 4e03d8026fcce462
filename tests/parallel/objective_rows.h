// Plans, batches and references for tests of objectives other than language modeling.
#pragma once

#include "nn/initialize.h"
#include "objective/reference.h"
#include "parallel/plans.h"

namespace lockstep::parallel::objective_rows {

inline constexpr auto kShards = SequenceSharding::kShards;
inline constexpr auto kUlysses = ContextAttention::kUlysses;
inline constexpr auto kAllow = ZeroInPipeline::kAllow;
inline constexpr auto kFull = Recompute::kFull;

/// Plans with every axis, and every strategy that affects the head, the loss or micro-batches.
inline std::vector<PlanCase> plans() {
  return {
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{}, 4},
      {{.tensor = 2}, 2},
      {{.tensor = 4}, 1, {.sequence_sharding = kShards}},
      {{.context = 2}, 2, {.context_attention = kUlysses}},
      {{.context = 3}, 1, {.recompute = {kFull}}},
      {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2}, 2, {.recompute = {kFull}, .pipeline = {.schedule = "zb-v"}}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 2}},
      {{.pipeline = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
      {{.context = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
      {{.pipeline = 2, .data = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
      {{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      {{.pipeline = 2, .context = 2, .tensor = 2}, 2, {.pipeline = {"interleaved", 2}}},
      {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 3, .zero_in_pipeline = kAllow}},
  };
}

/// Plans with each axis once.
inline std::vector<PlanCase> few_plans() {
  return {
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{.tensor = 2}, 2},
      {{.context = 3}, 1, {.recompute = {kFull}}},
      {{.pipeline = 2, .data = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
  };
}

inline std::function<void(ModelSpec&)> trained_for(objective::ObjectivePointer objective) {
  return [objective](ModelSpec& spec) { spec.objective = objective; };
}

/// Builds the rows of a range of the step's units, with their kinds, groups and reference scores.
inline nn::ForwardInputs rows_of_units(
    const model::ModelConfig& config,
    int64_t step,
    mesh::Range units,
    int64_t length,
    const std::vector<nn::RowKind>& kinds) {  // of a unit's rows, or of all rows
  auto generator = at::make_generator<at::CPUGeneratorImpl>(300 + static_cast<uint64_t>(step));
  const int64_t of_unit = std::ssize(kinds) == kPlanRows ? 1 : std::ssize(kinds);
  const int64_t all = kPlanRows * of_unit, begin = units.begin * of_unit,
                count = units.size() * of_unit;
  const auto part = [&](const Tensor& whole) { return whole.narrow(0, begin, count); };
  const Tensor ids = at::empty({all, length}, at::kLong).random_(0, config.vocab_size, generator);
  // Prompts have no targets, and answers have different lengths.
  const Tensor places = at::arange(length), rows = at::arange(all).unsqueeze(1);
  const Tensor labels =
      ids.masked_fill((places < 2 + rows % 3).logical_or(places >= length - rows % 4), -100);
  nn::ForwardInputs inputs;
  inputs.ids = part(ids);
  inputs.targets = nn::next_tokens(part(labels));
  inputs.targets.reference =
      part(inputs.targets.counts.new_empty({all}).normal_(-30, 5, generator));
  std::vector<int64_t> kind;
  for (int64_t row = 0; row < all; ++row) {
    kind.push_back(static_cast<int64_t>(kinds[static_cast<size_t>(row % std::ssize(kinds))]));
  }
  inputs.targets.kinds = part(at::tensor(kind, at::kLong));
  inputs.targets.groups = at::arange(count).div(of_unit, "floor");
  inputs.samples = at::arange(step * all + begin, step * all + begin + count);
  inputs.seed = 5;
  inputs.step = step;
  inputs.training = true;
  return inputs;
}

/// Pairs of a chosen and a rejected answer.
inline nn::ForwardInputs pairs(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  return rows_of_units(config, step, units, length, {nn::RowKind::kChosen, nn::RowKind::kRejected});
}

/// Rows of the forget and retain sets. Some data ranks have only one of the two kinds.
inline nn::ForwardInputs forgotten_and_kept(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  using enum nn::RowKind;
  return rows_of_units(config, step, units, length, {kForget, kRetain, kRetain, kRetain, kForget});
}

/// Rows of several lengths, each with a class at its last token; one row has no class.
inline nn::ForwardInputs classified(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = plan_inputs(config, step, units, length);
  const Tensor rows = at::arange(units.begin, units.end, at::kLong);
  const Tensor classes = (rows * 7 + step).remainder(3).masked_fill(rows == 2, -100);
  inputs.targets = nn::classes_at(length - 1 - (rows * 3).remainder(length), classes, length);
  return inputs;
}

/// The same rows with three labels each, or numbers.
inline nn::ForwardInputs labelled(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = classified(config, step, units, length);
  const Tensor rows = at::arange(units.begin, units.end, at::kLong);
  const Tensor numbers = rows.unsqueeze(1) * 5 + at::arange(3) * 3 + step;
  inputs.targets = nn::classes_at(
      length - 1 - (rows * 3).remainder(length),
      at::zeros_like(rows).masked_fill(rows == 2, -100),
      length);
  inputs.targets.outputs = numbers.remainder(7).gt(2).to(at::kFloat);
  return inputs;
}

inline std::function<void(ModelSpec&)> classifying(
    objective::ObjectivePointer objective = objective::cross_entropy()) {
  return [objective](ModelSpec& spec) {
    spec.config = model::with_head(
        spec.config, {model::HeadSpec::Kind::kClassifier, {"bad", "so so", "good"}});
    spec.fill = fill_at_random(spec.config, 3);
    spec.objective = objective;
  };
}

/// Pairs with the prompts of chosen rows as additional targets.
inline nn::ForwardInputs pairs_with_prompts(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = pairs(config, step, units, length);
  const nn::Targets answers = inputs.targets;
  const Tensor places = at::arange(length);
  const Tensor rows = at::arange(2 * units.begin, 2 * units.end).unsqueeze(1);
  const Tensor are_prompts = places.lt(2 + rows % 3);
  const Tensor ends = places.ge(length - rows % 4);
  const Tensor skipped = are_prompts.logical_and(rows.remainder(2).eq(1)).logical_or(ends);
  inputs.targets = nn::next_tokens(
      inputs.ids.masked_fill(skipped, -100), are_prompts.expand({inputs.ids.size(0), length}));
  inputs.targets.kinds = answers.kinds;
  inputs.targets.groups = answers.groups;
  return inputs;
}

/// Unpaired answers, scored against a KL baseline; some data ranks have only chosen answers.
inline nn::ForwardInputs answers(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  using enum nn::RowKind;
  nn::ForwardInputs inputs =
      rows_of_units(config, step, units, length, {kChosen, kRejected, kChosen, kChosen, kRejected});
  inputs.targets.baseline = at::full({inputs.ids.size(0)}, 0.4, at::kDouble);
  return inputs;
}

/// Pairs for reward models, read at the last tokens of rows of several lengths.
inline nn::ForwardInputs rewarded_pairs(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = pairs(config, step, units, length);
  const nn::Targets answers = inputs.targets;
  const Tensor rows = at::arange(2 * units.begin, 2 * units.end, at::kLong);
  inputs.targets =
      nn::classes_at(length - 1 - (rows * 3).remainder(length), at::zeros_like(rows), length);
  inputs.targets.kinds = answers.kinds;
  inputs.targets.groups = answers.groups;
  return inputs;
}

/// Groups of three rows: a forget answer, an alternative answer and a retain row.
inline nn::ForwardInputs alternates(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  using enum nn::RowKind;
  return rows_of_units(config, step, units, length, {kForget, kChosen, kRetain});
}

/// Retain rows are compared with the distributions of a reference model at all positions, including
/// the prompt.
inline nn::ForwardInputs forgotten_and_compared(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = forgotten_and_kept(config, step, units, length);
  const Tensor rows = at::arange(units.begin, units.end).unsqueeze(1);
  const Tensor kept =
      inputs.targets.kinds.eq(static_cast<int64_t>(nn::RowKind::kRetain)).unsqueeze(1);
  inputs.targets = nn::with_distributions(
      inputs.targets, kept.logical_and(at::arange(length) < length - rows % 4));
  return inputs;
}

/// A second model with different values, under the same plan.
inline ModelSpec another_model(const ModelSpec& spec) {
  return {.config = spec.config, .fill = fill_at_random(spec.config, 9)};
}

inline std::shared_ptr<objective::Reference> frozen_model(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes) {
  const std::shared_ptr model = evaluation_model(another_model(spec), plan, axes);
  return std::make_shared<objective::FrozenModel>(
      [model](auto batches) { return model->head_states(batches); });
}

/// Forget rows target the reference distributions with the logit of the target token lowered.
inline nn::ForwardInputs lowered(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = forgotten_and_kept(config, step, units, length);
  const Tensor tokens = inputs.targets.tokens;
  const Tensor forget =
      inputs.targets.kinds.eq(static_cast<int64_t>(nn::RowKind::kForget)).unsqueeze(1);
  const Tensor positions = forget.logical_and(tokens.ne(-100));
  inputs.targets =
      nn::with_distributions(inputs.targets, positions, tokens, positions.to(at::kDouble).mul(2.5));
  return inputs;
}

/// Forget rows target the model's own distribution over the other tokens.
inline nn::ForwardInputs other_tokens(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = forgotten_and_kept(config, step, units, length);
  const Tensor forget =
      inputs.targets.kinds.eq(static_cast<int64_t>(nn::RowKind::kForget)).unsqueeze(1);
  const Tensor positions = forget.logical_and(inputs.targets.tokens.ne(ops::kIgnoredTarget));
  inputs.targets = nn::with_other_tokens(std::move(inputs.targets), positions);
  return inputs;
}

/// Forget rows target uniform logits; the weight of retain rows changes with the step.
inline nn::ForwardInputs levelled(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = forgotten_and_kept(config, step, units, length);
  const Tensor forget =
      inputs.targets.kinds.eq(static_cast<int64_t>(nn::RowKind::kForget)).unsqueeze(1);
  inputs.targets = nn::with_level(
      inputs.targets, forget.logical_and(inputs.targets.tokens.ne(ops::kIgnoredTarget)));
  inputs.targets.weights = at::full_like(inputs.targets.counts, 0.5 + static_cast<double>(step));
  return inputs;
}

/// Rows with target states at the fourth of five layers, from a reference model or a fixed vector.
inline nn::ForwardInputs steered(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = forgotten_and_kept(config, step, units, length);
  inputs.targets = nn::with_states(inputs.targets);
  return inputs;
}

inline std::shared_ptr<objective::Reference> steering(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes) {
  const Tensor target = at::arange(spec.config.hidden_size, at::kFloat).mul(0.7).sin();
  return std::make_shared<objective::Steered>(frozen_model(spec, plan, axes), target);
}

inline std::function<void(ModelSpec&)> ending_at_a_layer(
    objective::Means means, std::vector<std::string> freeze = {}) {
  return [means, freeze](ModelSpec& spec) {
    spec.config = model::with_head(spec.config, model::states_head(4));
    spec.fill = fill_at_random(spec.config, 3);
    spec.objective = objective::steered_states({.gamma = 0.7, .alpha = 1.5, .means = means});
    spec.freeze = freeze;
  };
}

}  // namespace lockstep::parallel::objective_rows
