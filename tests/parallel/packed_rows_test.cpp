// Plan tests of packed rows for objectives with one score per document. Losses, gradients and sums
// equal those of one rank with one document per row, dropout included.
#include <gtest/gtest.h>

#include "model/head.h"
#include "parallel/objective_rows.h"

namespace lockstep::parallel {
namespace packed_rows_test {

using namespace objective_rows;

constexpr int64_t kPadding = 3;

/// Source of the tokens of packed rows: three rows are packed into one, without the tokens after
/// their last targets, and followed by padding.
struct Layout {
  std::vector<int64_t> from, documents, starts;  // [R, L]; -1: padding
  int64_t rows = 0, length = 0;
};

Layout layout_of(const Tensor& are_needed) {
  const int64_t count = are_needed.size(0), length = are_needed.size(1);
  std::vector<std::vector<int64_t>> rows;
  for (int64_t row = 0; row < count; ++row) {
    if (row % 3 == 0) {
      rows.emplace_back();
    }
    int64_t tokens = length;
    while (tokens > 1 && !are_needed[row][tokens - 1].item<bool>()) {
      --tokens;
    }
    for (int64_t t = 0; t < tokens; ++t) {
      rows.back().push_back(row * length + t);
    }
  }
  Layout layout;
  layout.rows = std::ssize(rows);
  for (const std::vector<int64_t>& row : rows) {
    layout.length = std::max(layout.length, std::ssize(row) + kPadding);
  }
  for (std::vector<int64_t>& row : rows) {
    int64_t start = 0, document = 0;
    const int64_t tokens = std::ssize(row);
    row.resize(static_cast<size_t>(layout.length), -1);
    for (int64_t t = 0; t < layout.length; ++t) {
      const int64_t from = row[static_cast<size_t>(t)];
      if (t == tokens || (from >= 0 && (t == 0 || from / length != document))) {
        start = t;
        document = from >= 0 ? from / length : document;
      }
      layout.from.push_back(from);
      layout.documents.push_back(document);
      layout.starts.push_back(start);
    }
  }
  return layout;
}

nn::ForwardInputs packed(const nn::ForwardInputs& inputs) {
  nn::ForwardInputs result = inputs;
  Tensor are_needed = inputs.targets.tokens.ne(ops::kIgnoredTarget);
  if (const Tensor positions = inputs.targets.distributions.all(); positions.defined()) {
    are_needed = are_needed.logical_or(positions);
  }
  const Layout layout = layout_of(are_needed);
  const auto laid_out = [&](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).view({layout.rows, layout.length});
  };
  const Tensor from = laid_out(layout.from), is_padding = from.lt(0);
  const auto take = [&](Tensor& of_tokens, int64_t padding) {
    if (of_tokens.defined()) {
      of_tokens = of_tokens.flatten().index({from.clamp_min(0)}).masked_fill(is_padding, padding);
    }
  };
  nn::Targets& targets = result.targets;
  take(result.ids, 7);
  take(targets.tokens, ops::kIgnoredTarget);
  take(targets.prompts, 0);
  take(targets.distributions.positions, 0);
  take(targets.distributions.lowered, 0);
  take(targets.distributions.level, 0);
  targets.documents = laid_out(layout.documents);
  result.real_tokens = is_padding.logical_not();
  result.document_starts = laid_out(layout.starts);
  result.positions = at::arange(layout.length, at::kLong) - result.document_starts;
  result.token_samples =
      at::stack({inputs.samples.index({targets.documents}), result.positions}, 2);
  result.samples = inputs.samples.narrow(0, 0, layout.rows);  // no row uses them for dropout
  return result;
}

/// Compares packed rows under each plan with one document per row on one rank.
void expect_packed(
    const std::string& json,
    const std::vector<PlanCase>& table,
    const std::function<void(ModelSpec&)>& vary,
    const RowMaker& rows_of,
    const ReferenceMaker& reference_of = nullptr) {
  std::vector<PlanCase> plans = table;
  plans.insert(plans.begin(), PlanCase{});
  const auto rows_under_plans =
      [&](const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
        return packed(rows_of(config, step, units, length));
      };
  expect_table(json, plans, vary, rows_of, reference_of, rows_under_plans);
}

std::function<void(ModelSpec&)> rewarding() {
  return [](ModelSpec& spec) {
    spec.config = model::with_head(spec.config, model::reward_head());
    spec.fill = fill_at_random(spec.config, 3);
    spec.objective = objective::reward_of_pairs(0.1);
  };
}

/// One objective of each kind: read at a position, summed over documents, defined at tokens.
TEST(PlanTable, PackedRows) {
  expect_packed(kOddGpt2, few_plans(), classifying(), classified);
  const auto preference = objective::direct_preference({.beta = 0.2});
  expect_packed(kOddGpt2, few_plans(), trained_for(preference), pairs);
}

class PackedRows : public ::testing::TestWithParam<const char*> {};

TEST_P(PackedRows, EqualRowsOfOne) {
  const auto smoothed =
      objective::class_cross_entropy({{1, 2, 0.5}, /*focal_gamma=*/1, /*label_smoothing=*/0.2});
  const auto odds_ratio = objective::direct_preference(
      {.loss = objective::PairLoss::kOddsRatio,
       .beta = 0.1,
       .reference = false,
       .per_token = true,
       .likelihood = 1});
  const auto judged = objective::answer_preference({.beta = 0.3, .undesirable_weight = 1.3});
  const std::string model = with_five_layers(GetParam());
  expect_packed(model, plans(), classifying(smoothed), classified);
  expect_packed(model, plans(), classifying(objective::label_cross_entropy()), labelled);
  expect_packed(model, plans(), classifying(objective::squared_error()), labelled);
  expect_packed(model, plans(), rewarding(), rewarded_pairs);
  expect_packed(model, plans(), trained_for(odds_ratio), pairs_with_prompts);
  expect_packed(model, plans(), trained_for(judged), answers);
}

TEST_P(PackedRows, EqualRowsOfOneWhereTheyAreForgotten) {
  const std::string model = with_five_layers(GetParam());
  for (const auto& objective :
       {objective::gradient_difference({.gamma = 0.5, .alpha = 2}),
        objective::weighted_ascent({.alpha = 0.5, .beta = 0.3}),
        objective::negative_preference({.alpha = 0.7, .beta = 0.2})}) {
    expect_packed(model, few_plans(), trained_for(objective), forgotten_and_kept);
    expect_packed(model, few_plans(), trained_for(objective), forgotten_and_compared, frozen_model);
  }
  expect_packed(
      model,
      few_plans(),
      trained_for(objective::alternate_preference({.alpha = 0.7, .beta = 0.2})),
      alternates);
  expect_packed(
      model,
      few_plans(),
      trained_for(objective::lowered_distribution({.alpha = 0.7})),
      lowered,
      frozen_model);
  expect_packed(
      model,
      few_plans(),
      trained_for(objective::level_distribution({.gamma = 0.3, .retain_bound = 0.7})),
      levelled);
}

std::string name_of(const ::testing::TestParamInfo<const char*>& json) {
  return std::vector<std::string>{"Gpt2", "Llama"}.at(json.index);
}

INSTANTIATE_TEST_SUITE_P(Long, PackedRows, ::testing::Values(kOddGpt2, kOddLlama), name_of);

}  // namespace packed_rows_test
}  // namespace lockstep::parallel
