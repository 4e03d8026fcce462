// The table of plans, for other objectives than language modelling's: rows that are judged
// together, losses of two terms, weights that follow from scores.
#include <gtest/gtest.h>

#include "parallel/plans.h"

namespace lockstep::parallel {
namespace objectives_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kUlysses = ContextAttention::kUlysses;
constexpr auto kAllow = ZeroInPipeline::kAllow;
constexpr auto kFull = Recompute::kFull;

/// Every axis, and every strategy that has to do with the head, the loss or micro-batches.
std::vector<PlanCase> plans() {
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

std::function<void(ModelSpec&)> trained_for(objective::ObjectivePointer objective) {
  return [objective](ModelSpec& spec) { spec.objective = objective; };
}

/// The rows of a step's units: their kinds, groups and reference scores of the whole step's.
nn::ForwardInputs rows_of_units(
    const model::ModelConfig& config,
    int64_t step,
    mesh::Range units,
    int64_t length,
    const std::vector<nn::RowKind>& kinds) {  // of a unit's rows, or of the step's
  auto generator = at::make_generator<at::CPUGeneratorImpl>(300 + static_cast<uint64_t>(step));
  const int64_t of_unit = std::ssize(kinds) == kPlanRows ? 1 : std::ssize(kinds);
  const int64_t all = kPlanRows * of_unit, begin = units.begin * of_unit,
                count = units.size() * of_unit;
  const auto part = [&](const Tensor& whole) { return whole.narrow(0, begin, count); };
  const Tensor ids = at::empty({all, length}, at::kLong).random_(0, config.vocab_size, generator);
  // A prompt is not predicted, and answers are of many lengths.
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

/// A chosen and a rejected answer.
nn::ForwardInputs pairs(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  return rows_of_units(config, step, units, length, {nn::RowKind::kChosen, nn::RowKind::kRejected});
}

/// Some data ranks have nothing to forget, or nothing to keep.
nn::ForwardInputs forgotten_and_kept(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  using enum nn::RowKind;
  return rows_of_units(config, step, units, length, {kForget, kRetain, kRetain, kRetain, kForget});
}

TEST(PlanTable, Preference) {
  const auto objective = objective::direct_preference({.beta = 0.2});
  expect_table(with_five_layers(kOddGpt2), plans(), trained_for(objective), pairs);
  expect_table(with_five_layers(kOddLlama), plans(), trained_for(objective), pairs);
}

TEST(PlanTable, Unlearning) {
  for (const auto& objective :
       {objective::gradient_difference({.gamma = 0.5, .alpha = 2}),
        objective::weighted_ascent({.alpha = 0.5, .beta = 0.3}),
        objective::negative_preference({.alpha = 0.7, .beta = 0.2})}) {
    expect_table(with_five_layers(kOddLlama), plans(), trained_for(objective), forgotten_and_kept);
  }
}

}  // namespace objectives_test
}  // namespace lockstep::parallel
