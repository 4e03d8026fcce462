// Objectives: counts, losses, gradients and metrics.
#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "base/json.h"
#include "nn/layers.h"
#include "nn/testing.h"
#include "numbers.h"
#include "objective/objectives.h"
#include "objective/reference.h"
#include "objective/run_head.h"
#include "shared_data.h"

namespace lockstep::objective {
namespace objective_test {

constexpr auto kChosen = nn::RowKind::kChosen, kRejected = nn::RowKind::kRejected,
               kForget = nn::RowKind::kForget, kRetain = nn::RowKind::kRetain;

Tensor kinds_of(const std::vector<nn::RowKind>& kinds) {
  std::vector<int64_t> numbers;
  for (const nn::RowKind kind : kinds) {
    numbers.push_back(static_cast<int64_t>(kind));
  }
  return at::tensor(numbers, at::kLong);
}

Tensor random_numbers(at::IntArrayRef sizes, uint64_t seed, double mean, double deviation) {
  return at::empty(sizes, at::kDouble)
      .normal_(mean, deviation, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// Rows of all kinds, including padding, and two pairs that are not adjacent.
nn::Targets some_targets() {
  Tensor labels = at::arange(42, at::kLong).view({7, 6});
  labels[1].narrow(0, 0, 3).fill_(-100);
  labels[3].fill_(-100);
  nn::Targets targets = nn::next_tokens(labels);
  targets.kinds =
      kinds_of({kChosen, kForget, kRejected, nn::RowKind::kPlain, kRetain, kRejected, kChosen});
  targets.groups = at::tensor({4, 0, 4, 0, 0, 2, 2}, at::kLong);
  targets.reference = random_numbers({7}, 3, -8, 2);
  targets.baseline = at::full({7}, 0.7, at::kDouble);
  return targets;
}

/// All objectives that depend on the rows' scores.
std::map<std::string, ObjectivePointer> objectives_of_rows() {
  return {
      {"preference", direct_preference({.beta = 0.3})},
      {"preference, smoothed", direct_preference({.beta = 0.3, .label_smoothing = 0.2})},
      {"hinge", direct_preference({.loss = PairLoss::kHinge, .beta = 0.3})},
      {"IPO", direct_preference({.loss = PairLoss::kIpo, .beta = 0.3, .per_token = true})},
      {"EXO", direct_preference({.loss = PairLoss::kExoPair, .beta = 0.3, .label_smoothing = 0.1})},
      {"NCA", direct_preference({.loss = PairLoss::kNcaPair, .beta = 0.3})},
      {"robust",
       direct_preference({.loss = PairLoss::kRobust, .beta = 0.3, .label_smoothing = 0.1})},
      {"BCO", direct_preference({.loss = PairLoss::kBcoPair, .beta = 0.3})},
      {"SPPO", direct_preference({.loss = PairLoss::kSppoHard, .beta = 0.3})},
      {"APO zero", direct_preference({.loss = PairLoss::kApoZero, .beta = 0.3})},
      {"APO down", direct_preference({.loss = PairLoss::kApoDown, .beta = 0.3})},
      {"DiscoPOP", direct_preference({.loss = PairLoss::kDiscoPop, .beta = 0.3})},
      {"SimPO",
       direct_preference({.beta = 2, .margin = 0.5, .reference = false, .per_token = true})},
      {"CPO", direct_preference({.beta = 0.2, .reference = false, .likelihood = 0.4})},
      {"ORPO",
       direct_preference(
           {.loss = PairLoss::kOddsRatio,
            .beta = 0.4,
            .reference = false,
            .per_token = true,
            .likelihood = 1})},
      {"KTO", answer_preference({.beta = 0.3, .desirable_weight = 1.5, .undesirable_weight = 0.8})},
      {"APO zero of answers", answer_preference({.beta = 0.3, .apo_zero = true})},
      {"GradAscent", gradient_ascent()},
      {"GradDiff", gradient_difference({.gamma = 0.5, .alpha = 2})},
      {"NPO", negative_preference({.gamma = 0.5, .beta = 0.2})},
      {"DPO of an alternate", alternate_preference({.gamma = 0.5, .beta = 0.3})},
      {"SimNPO", simple_negative_preference({.alpha = 3, .beta = 2.5, .delta = 0.1})},
      {"NPO, means of micro-batches",
       negative_preference({.beta = 0.2, .means = Means::kOfMicroBatches})},
  };
}

TEST(Counts, DivideByOneWhereNothingIsCounted) {
  Counts sum(0);
  EXPECT_EQ(sum.divisor(), 1);
  sum += Counts({3, 6});
  sum += Counts({1, 2});
  EXPECT_EQ(sum.divisor(), 4);
  EXPECT_EQ(sum.share(1), 0.5);
  EXPECT_EQ(sum.divisor(2), 1);
}

TEST(Targets, ARowsFirstLabelIsNotPredicted) {
  const nn::Targets targets =
      nn::next_tokens(at::tensor({1, 2, 3, -100, 5, 6}, at::kLong).view({2, 3}));
  EXPECT_TRUE(targets.tokens.equal(at::tensor({2, 3, -100, 5, 6, -100}, at::kLong).view({2, 3})));
  EXPECT_TRUE(targets.counts.equal(at::tensor({2.0, 2.0}, at::kDouble)));
  EXPECT_EQ(nn::next_tokens(at::zeros({2, 1}, at::kLong)).counts.sum().item<double>(), 0);
}

TEST(Targets, AClassIsPredictedByOnePosition) {
  const nn::Targets targets =
      nn::classes_at(at::tensor({2, 0}, at::kLong), at::tensor({1, -100}, at::kLong), 4);
  EXPECT_TRUE(targets.tokens.equal(
      at::tensor({-100, -100, 1, -100, -100, -100, -100, -100}, at::kLong).view({2, 4})));
  EXPECT_TRUE(targets.counts.equal(at::tensor({1.0, 0.0}, at::kDouble)));
}

TEST(CrossEntropy, CountsAndMeasuresTargets) {
  const nn::Targets targets =
      nn::next_tokens(at::tensor({1, 2, 3, -100, -100, 6}, at::kLong).view({2, 3}));
  const auto objective = cross_entropy();
  EXPECT_EQ(objective->counts(targets).divisor(), 3);
  const nn::Scores scores{
      at::tensor({-1.0F, -2.0F, 0.0F, 0.0F, -3.0F, 0.0F}).view({2, 3}),
      at::tensor({1, 0, 0, 0, 1, 0}).view({2, 3}).to(at::kBool)};
  const Tensor sums = objective->measure(scores, targets, 3);
  EXPECT_TRUE(sums.equal(at::tensor({6.0, 3.0, 2.0}, at::kDouble)));
  const Report report = objective->report({sums.const_data_ptr<double>(), 3});
  EXPECT_EQ(report.loss, 2);
  EXPECT_EQ(report.metrics[0], std::pair(std::string("perplexity"), std::exp(2.0)));
  EXPECT_EQ(report.metrics[1].first, "token_accuracy");
  EXPECT_NEAR(report.metrics[1].second, 2.0 / 3, 1e-12);
  const std::vector<double> nothing(3, 0.0);
  EXPECT_EQ(objective->report(nothing).loss, 0);
}

/// Compares objectives of row logits with torch's loss and gradient.
void expect_torchs(
    const Objective& objective,
    const nn::Targets& targets,
    const Tensor& logits,
    const Tensor& loss,
    double count) {
  const Counts step = objective.counts(targets);
  EXPECT_NEAR(step.divisor(), count, 1e-12);
  const Weighing weighing = objective.weigh({logits.detach(), {}}, targets, step);
  EXPECT_NEAR(weighing.sums[0].item<double>(), loss.item<double>(), 1e-9);
  EXPECT_NEAR(weighing.sums[1].item<double>(), count, 1e-12);
  const Tensor gradient = torch::autograd::grad({loss}, {logits}).front();
  EXPECT_LT((weighing.weights + gradient).abs().max().item<double>(), 1e-9);
}

TEST(ClassCrossEntropy, HasTheFocalLossAndItsSlopes) {
  const Tensor classes = at::tensor({2, 0, -100, 1}, at::kLong);
  const nn::Targets targets = nn::classes_at(at::tensor({1, 0, 2, 2}, at::kLong), classes, 3);
  const Tensor logits = random_numbers({4, 3}, 9, 0, 1).requires_grad_(true);
  const Tensor weights = at::tensor({0.5, 2.0, 1.5}, at::kDouble);
  const Tensor has = classes.ne(-100);
  for (const double gamma : {0.0, 2.0}) {
    const Tensor own = at::log_softmax(logits.to(at::kDouble), 1)
                           .gather(1, classes.clamp_min(0).unsqueeze(1))
                           .squeeze(1);
    const Tensor factor = (1 - own.exp()).pow(gamma);
    const Tensor loss = -(factor * own * weights.index({classes.clamp_min(0)}) * has).sum();
    expect_torchs(*class_cross_entropy({{0.5, 2.0, 1.5}, gamma}), targets, logits, loss, 4);
  }
}

/// Independent of the class weights.
TEST(ClassCrossEntropy, CountsTheRowsThatItTellsRightly) {
  const nn::Targets targets = nn::classes_at(
      at::tensor({1, 0, 2, 2}, at::kLong), at::tensor({2, 0, -100, 1}, at::kLong), 3);
  const Tensor logits =
      at::tensor({0.F, 1.F, 2.F, 5.F, 1.F, 0.F, 9.F, 0.F, 0.F, 3.F, 1.F, 0.F}).view({4, 3});
  const auto objective = class_cross_entropy({{0.5, 2.0, 1.5}});
  const Tensor sums = objective->measure({logits, {}}, targets, objective->counts(targets));
  const Report report = objective->report({sums.const_data_ptr<double>(), 4});
  ASSERT_EQ(report.metrics.size(), 1U);
  EXPECT_EQ(report.metrics[0].first, "accuracy");
  EXPECT_NEAR(report.metrics[0].second, 2.0 / 3, 1e-12);
  EXPECT_EQ(objective->report(std::vector<double>(4, 0.0)).loss, 0);
}

TEST(ClassCrossEntropy, IsSmoothedAsTorchs) {
  const Tensor classes = at::tensor({2, 0, -100, 1}, at::kLong);
  const auto targets = nn::classes_at(at::tensor({1, 0, 2, 2}, at::kLong), classes, 3);
  const Tensor logits = random_numbers({4, 3}, 9, 0, 1).requires_grad_(true);
  for (const std::vector<double>& weights : {std::vector<double>{}, {0.5, 2.0, 1.5}}) {
    const Tensor of_classes = weights.empty() ? Tensor() : at::tensor(weights, at::kDouble);
    const Tensor loss =
        at::cross_entropy_loss(logits, classes, of_classes, at::Reduction::Sum, -100, 0.3);
    const auto objective = class_cross_entropy({.weights = weights, .label_smoothing = 0.3});
    expect_torchs(*objective, targets, logits, loss, weights.empty() ? 3 : 4);
  }
}

TEST(RowOutputs, AreTorchsLossesOfTheRowsThatHaveAny) {
  const Tensor wanted = at::tensor({1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0}).view({4, 2});
  const Tensor has = at::tensor({0, 0, -100, 0}, at::kLong);
  nn::Targets targets = nn::classes_at(at::tensor({1, 0, 2, 2}, at::kLong), has, 3);
  targets.outputs = wanted.to(at::kFloat);
  const Tensor logits = random_numbers({4, 2}, 9, 0, 2).requires_grad_(true);
  const Tensor rows = at::tensor({0, 1, 3}, at::kLong), weights = at::tensor({3.0, 0.5});
  const Tensor told = wanted.index_select(0, rows);
  const auto own = [&] { return logits.index_select(0, rows); };  // separate graphs
  const auto sum = at::Reduction::Sum;
  expect_torchs(
      *label_cross_entropy(),
      targets,
      logits,
      at::binary_cross_entropy_with_logits(own(), told, {}, {}, sum),
      6);
  expect_torchs(
      *label_cross_entropy({.weights = {3.0, 0.5}}),
      targets,
      logits,
      at::binary_cross_entropy_with_logits(own(), told, {}, weights, sum),
      6);
  const Tensor p = own().sigmoid(), p_of_told = told * p + (1 - told) * (1 - p);
  expect_torchs(
      *label_cross_entropy({.focal_gamma = 1.5}),
      targets,
      logits,
      (-(1 - p_of_told).pow(1.5) * p_of_told.log()).sum(),
      6);
  expect_torchs(*squared_error(), targets, logits, (own() - told).square().sum(), 6);
  EXPECT_THROW(label_cross_entropy({.label_smoothing = 0.1}), Error);
  EXPECT_THROW((void)squared_error()->counts(nn::classes_at(rows, rows, 4)), Error);
}

TEST(Objectives, WeightsAreTheSlopesOfTheLoss) {
  const nn::Targets targets = some_targets();
  const Tensor rows = random_numbers({7}, 5, -8, 2);
  for (const auto& [name, objective] : objectives_of_rows()) {
    const Counts step = objective->counts(targets);
    const Weighing weighing = objective->weigh({rows, {}}, targets, step);
    EXPECT_EQ(weighing.sums.numel(), objective->sums()) << name;
    EXPECT_EQ(weighing.sums[1].item<double>(), step.values()[0]) << name;
    const auto loss_at = [&](int64_t row, double shift) {
      const Tensor moved = rows.clone();
      moved[row] += shift;
      return objective->measure({moved, {}}, targets, step)[0].item<double>();
    };
    for (int64_t row = 0; row < 7; ++row) {
      constexpr double kStep = 1e-4;
      const double slope = (loss_at(row, kStep) - loss_at(row, -kStep)) / (2 * kStep);
      EXPECT_NEAR(weighing.weights[row].item<double>(), -slope, 1e-7) << name << ", row " << row;
    }
    EXPECT_EQ(weighing.weights[3].item<double>(), 0) << name << ": padding";
  }
}

/// Prompts of chosen rows are trained like the answers, but excluded from the odds.
TEST(Preference, AnswersAndPromptsHaveWeightsOfTheirOwn) {
  nn::Targets targets = some_targets();
  const Tensor labels = at::arange(42, at::kLong).view({7, 6});
  nn::Targets split = nn::next_tokens(labels, at::arange(6).lt(3).expand({7, 6}));
  EXPECT_TRUE(split.counts.equal(at::full({7}, 3.0, at::kDouble)));
  EXPECT_TRUE(split.prompt_counts.equal(at::full({7}, 2.0, at::kDouble)));
  split.kinds = targets.kinds;
  split.groups = targets.groups;
  const auto objective = direct_preference(
      {.loss = PairLoss::kOddsRatio,
       .beta = 0.4,
       .reference = false,
       .per_token = true,
       .likelihood = 1});
  const Counts step = objective->counts(split);
  EXPECT_EQ(step.values(), (std::vector<double>{2, 10}));
  const Tensor scores = random_numbers({7, 2}, 5, -8, 2);
  const Weighing weighing = objective->weigh({scores, {}}, split, step);
  for (int64_t at = 0; at < 14; ++at) {
    constexpr double kStep = 1e-4;
    const auto loss_at = [&](double shift) {
      const Tensor moved = scores.clone();
      moved.view({-1})[at] += shift;
      return objective->measure({moved, {}}, split, step)[0].item<double>();
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(weighing.weights.view({-1})[at].item<double>(), -slope, 1e-7) << at;
  }
  // The same loss from the sums of an evaluation, which knows the counts only at its end.
  const Tensor sums = objective->measure({scores, {}}, split, {});
  const Report report =
      objective->report({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())});
  EXPECT_NEAR(report.loss, weighing.sums[0].item<double>() / 2, 1e-12);
  EXPECT_EQ(report.metrics.back().first, "nll_loss");
  const double chosen = (scores[0].sum() + scores[6].sum()).item<double>();
  EXPECT_NEAR(report.metrics.back().second, -chosen / 10, 1e-12);
}

/// Bradley-Terry model of pairs, from the logits of a head with one class.
TEST(Preference, RewardsOfPairsHaveTheirSlopes) {
  const nn::Targets targets = some_targets();
  const Tensor rewards = random_numbers({7, 1}, 5, 0, 1);
  const auto objective = reward_of_pairs(0.3);
  const Counts step = objective->counts(targets);
  EXPECT_EQ(step.divisor(), 2);
  const Weighing weighing = objective->weigh({rewards, {}}, targets, step);
  const auto reward = [&](int64_t row) { return rewards[row][0].item<double>(); };
  double wanted = 0, margins = 0;
  for (const auto& [chosen, rejected] : {std::pair(0, 2), {6, 5}}) {
    const double margin = reward(chosen) - reward(rejected),
                 sum = reward(chosen) + reward(rejected);
    wanted += std::log1p(std::exp(0.7 - margin)) + 0.3 * sum * sum;  // 0.7: the margin
    margins += margin;
  }
  EXPECT_NEAR(weighing.sums[0].item<double>(), wanted, 1e-12);
  EXPECT_NEAR(weighing.sums[3].item<double>(), margins, 1e-12);
  for (int64_t row = 0; row < 7; ++row) {
    constexpr double kStep = 1e-5;
    const auto loss_at = [&](double shift) {
      const Tensor moved = rewards.clone();
      moved[row][0] += shift;
      return objective->measure({moved, {}}, targets, step)[0].item<double>();
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(weighing.weights[row][0].item<double>(), -slope, 1e-7) << row;
  }
}

TEST(Preference, JudgesAnswersAgainstABaseline) {
  const nn::Targets targets = some_targets();
  const Tensor rows = random_numbers({7}, 5, -8, 2);
  const auto objective =
      answer_preference({.beta = 0.3, .desirable_weight = 1.5, .undesirable_weight = 0.8});
  const Tensor sums = objective->measure({rows, {}}, targets, 4);
  const Report report = objective->report({sums.const_data_ptr<double>(), 8});
  double wanted = 0;
  for (const auto& [row, sign, weight] :
       {std::tuple(0, 1, 1.5), {6, 1, 1.5}, {2, -1, 0.8}, {5, -1, 0.8}}) {
    const double gain = (rows[row] - targets.reference[row]).item<double>();
    wanted += weight * (1 - 1 / (1 + std::exp(-sign * 0.3 * (gain - 0.7))));
  }
  EXPECT_NEAR(report.loss, wanted / 4, 1e-12);
  EXPECT_EQ(report.metrics.back().first, "kl");
  EXPECT_NEAR(report.metrics.back().second, 0.7, 1e-12);
  nn::Targets good = targets;
  good.kinds = good.kinds.masked_fill(good.kinds.eq(static_cast<int64_t>(kRejected)), 0);
  const Tensor some = objective->measure({rows, {}}, good, 2);
  EXPECT_EQ(objective->report({some.const_data_ptr<double>(), 8}).metrics.size(), 3U);
}

TEST(Preference, IsThePapersFormula) {
  const nn::Targets targets = some_targets();
  const Tensor rows = random_numbers({7}, 5, -8, 2);
  const auto gain = [&](int64_t row) {
    return (rows[row] - targets.reference[row]).item<double>();
  };
  const double first = 0.3 * (gain(0) - gain(2)), second = 0.3 * (gain(6) - gain(5));
  const auto objective = direct_preference({.beta = 0.3});
  const Tensor sums = objective->measure({rows, {}}, targets, 2);
  const Report report = objective->report({sums.const_data_ptr<double>(), 8});
  const double wanted = std::log1p(std::exp(-first)) + std::log1p(std::exp(-second));
  EXPECT_NEAR(report.loss, wanted / 2, 1e-12);
  EXPECT_EQ(report.metrics[0].first, "rewards/accuracies");
  EXPECT_NEAR(report.metrics[0].second, ((first > 0 ? 1 : 0) + (second > 0 ? 1 : 0)) / 2.0, 1e-12);
  EXPECT_NEAR(report.metrics[1].second, (first + second) / 2, 1e-12);
  nn::Targets without = targets;
  without.reference = Tensor();
  EXPECT_THROW(objective->measure({rows, {}}, without, 2), Error);
}

/// The gradient of the loss through the head equals that of the objective as a function of the
/// logits.
TEST(RunHead, GivesTheGradientOfTheWholeObjective) {
  const auto config = model::parse_model_config(nn::kSmallModels[1], "test");
  nn::ForwardInputs inputs = nn::small_inputs(config, 7, 6);
  nn::Targets targets = some_targets();
  targets.tokens.clamp_max_(36);
  inputs.targets = targets;
  std::map<std::string, ObjectivePointer> objectives = objectives_of_rows();
  objectives["WGA"] = weighted_ascent({.beta = 0.7});
  objectives["cross-entropy"] = cross_entropy();
  for (const auto& [name, objective] : objectives) {
    const Counts step = objective->counts(targets);
    const auto gradients_of = [&](const std::function<Tensor(const nn::LanguageModel&)>& loss_of) {
      const auto model = nn::small_model(config);
      const Tensor loss = loss_of(*model);
      loss.backward();
      std::map<std::string, Tensor> gradients;
      model->visit_parameters(
          [&](const std::string& key, Tensor& value) { gradients[key] = value.grad(); });
      return gradients;
    };
    Tensor sums;
    const auto got = gradients_of([&](const nn::LanguageModel& model) {
      const nn::Context context = model.make_context(inputs);
      const nn::Tensors states = model.forward_blocks(model.embed(context), context);
      const nn::Tensors judged = run_head(model, states, context, *objective, step);
      sums = judged.back();
      return judged.front();
    });
    Tensor exact;
    const auto wanted = gradients_of([&](const nn::LanguageModel& model) {
      const Tensor likelihoods = model.logits(inputs).log_softmax(-1, at::kDouble);
      const Tensor tokens = targets.tokens.clamp_min(0).unsqueeze(-1);
      const Tensor scores = likelihoods.gather(-1, tokens).squeeze(-1) * targets.tokens.ne(-100);
      const bool of_tokens =
          objective->needs() == Needs::kNothing || objective->needs() == Needs::kTokenScores;
      const Tensor likeliest = at::zeros_like(scores, at::kBool);
      exact = objective->measure({of_tokens ? scores : scores.sum(1), likeliest}, targets, step)[0];
      return exact;
    });
    EXPECT_NEAR(sums[0].item<double>(), exact.item<double>(), 1e-5 * std::abs(exact.item<double>()))
        << name;
    numbers::expect_gradients(got, wanted, name);
  }
}

/// Head with one class whose logits are rewards: compared with full autograd.
TEST(RunHead, GivesTheGradientOfRewards) {
  const auto config = model::with_head(
      model::parse_model_config(nn::kSmallModels[1], "test"), model::reward_head());
  nn::ForwardInputs inputs = nn::small_inputs(config, 7, 6);
  const nn::Targets rows = some_targets();
  const Tensor positions = at::tensor({5, 1, 3, 0, 2, 4, 5}, at::kLong);
  inputs.targets = nn::classes_at(positions, at::zeros({7}, at::kLong), 6);
  inputs.targets.kinds = rows.kinds;
  inputs.targets.groups = rows.groups;
  const auto objective = reward_of_pairs(0.1);
  const Counts step = objective->counts(inputs.targets);
  std::vector<double> losses;
  std::vector<std::map<std::string, Tensor>> gradients;
  for (const bool is_ours : {true, false}) {
    const auto model = nn::small_model(config);
    Tensor loss;
    if (is_ours) {
      const nn::Context context = model->make_context(inputs);
      const nn::Tensors states = model->forward_blocks(model->embed(context), context);
      const nn::Tensors judged = run_head(*model, states, context, *objective, step);
      losses.push_back(judged.back()[0].item<double>());
      loss = judged.front();
    } else {
      const Tensor rewards = model->logits(inputs).gather(1, positions.view({-1, 1, 1})).squeeze(1);
      loss = objective->measure({rewards, {}}, inputs.targets, step)[0];
      losses.push_back(loss.item<double>());
    }
    loss.backward();
    model->visit_parameters(
        [&, &found = gradients.emplace_back()](const std::string& key, Tensor& value) {
          found[key] = value.grad();
        });
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5 * std::abs(losses[1]));
  numbers::expect_gradients(gradients[0], gradients[1], "rewards");
}

/// [rows, T, V] -> log p of the next label at each position, [rows, T - 1].
Tensor scores_of(const Tensor& logits, const Tensor& tokens) {
  const Tensor likelihoods = logits.log_softmax(-1);
  return likelihoods.gather(-1, tokens.clamp_min(0).unsqueeze(-1)).squeeze(-1) * tokens.ne(-100);
}

Tensor tensor_of(const nlohmann::json& json, at::ScalarType type) {
  std::vector<int64_t> sizes;
  for (const nlohmann::json* at = &json; at->is_array(); at = &at->front()) {
    sizes.push_back(std::ssize(*at));
  }
  std::vector<double> values;
  const std::function<void(const nlohmann::json&)> collect = [&](const nlohmann::json& part) {
    if (!part.is_array()) {
      values.push_back(part.get<double>());
      return;
    }
    for (const nlohmann::json& element : part) {
      collect(element);
    }
  };
  collect(json);
  return at::tensor(values, at::kDouble).view(sizes).to(type);
}

/// Losses and their gradients by logits, compared with open-unlearning.
TEST(Objectives, AreThoseOfOpenUnlearning) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/losses.json");
  const nlohmann::json golden = read_json(shared_data() / "unlearning" / "golden" / "losses.json");
  const char* parts[] = {"forget", "retain", "alternate"};
  const auto stack = [&](const char* key, at::ScalarType type) {
    std::vector<Tensor> rows;
    for (const char* part : parts) {
      rows.push_back(tensor_of(golden[key][part], type));
    }
    return at::cat(rows);
  };
  nn::Targets targets = nn::next_tokens(stack("labels", at::kLong));
  targets.reference = scores_of(stack("reference_logits", at::kDouble), targets.tokens).sum(1);
  targets.groups = at::tensor({0, 1, 0, 0, 0, 1}, at::kLong);
  const Tensor unlearning =
      kinds_of({kForget, kForget, kRetain, kRetain, nn::RowKind::kPlain, nn::RowKind::kPlain});
  const Tensor preference =
      kinds_of({kRejected, kRejected, nn::RowKind::kPlain, nn::RowKind::kPlain, kChosen, kChosen});
  const Tensor alternates = kinds_of({kForget, kForget, kRetain, kRetain, kChosen, kChosen});
  struct Case {
    const char* name;
    ObjectivePointer objective;
    Tensor kinds;
    double factor = 1;  // from the reference's scale to ours
  };
  for (const Case& each : {
           Case{"GradAscent", gradient_ascent(), unlearning},
           Case{"GradDiff_NLL", gradient_difference(), unlearning},
           Case{"NPO_forget", negative_preference({.alpha = 0, .beta = 0.1}), unlearning},
           Case{"DPO_forget", direct_preference({.beta = 0.1}), preference, 2 / 0.1},
           Case{"DPO_forget", alternate_preference({.alpha = 0, .beta = 0.1}), alternates},
           Case{"SimNPO_forget", simple_negative_preference({.alpha = 0, .beta = 4.5}), unlearning},
           Case{
               "SimNPO_forget_delta1_beta2.5",
               simple_negative_preference({.alpha = 0, .beta = 2.5, .delta = 1}),
               unlearning},
           Case{"WGA_forget", weighted_ascent({.alpha = 0}), unlearning},
           Case{"WGA_forget_beta2", weighted_ascent({.alpha = 0, .beta = 2}), unlearning},
           Case{
               "SatImp_forget",
               weighted_ascent({.alpha = 0, .beta = 5, .saturation = 1}),
               unlearning},
       }) {
    targets.kinds = each.kinds;
    const Tensor leaf = stack("logits", at::kDouble).requires_grad_(true);
    const Tensor scores = scores_of(leaf, targets.tokens);
    const bool of_tokens = each.objective->needs() == Needs::kTokenScores;
    const Counts step = each.objective->counts(targets);
    const Weighing weighing =
        each.objective->weigh({of_tokens ? scores : scores.sum(1), {}}, targets, step);
    const Tensor weights = of_tokens ? weighing.weights : weighing.weights.unsqueeze(1);
    (weights * -scores).sum().mul(each.factor / step.divisor()).backward();
    const nlohmann::json& wanted = golden["methods"][each.name];
    EXPECT_NEAR(
        weighing.sums[0].item<double>() * each.factor / step.divisor(),
        wanted["loss"].get<double>(),
        1e-5 * std::abs(wanted["loss"].get<double>()))
        << each.name;
    for (int64_t part = 0; part < 3; ++part) {
      const nlohmann::json& gradient = wanted["grad_logits"][parts[part]];
      const Tensor got = leaf.grad().narrow(0, 2 * part, 2);
      numbers::expect_values(
          got,
          gradient.is_array() ? tensor_of(gradient, at::kDouble) : at::zeros_like(got),
          std::string(each.name) + " " + parts[part]);
    }
  }
}

/// RMU's losses and their gradients by the states, for the forget set and the retain set.
TEST(Objectives, StatesAreSteeredAsInOpenUnlearning) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/losses.json");
  const nlohmann::json golden = read_json(shared_data() / "unlearning" / "golden" / "losses.json");
  const nlohmann::json& wanted = golden["methods"]["RMU"];
  const Tensor direction = tensor_of(wanted["control_direction_before_scaling"], at::kDouble);
  const Tensor target = direction * (wanted["steering_coeff"].get<double>() / direction.norm());
  const nn::StateHead head;
  for (const bool forgets : {true, false}) {
    const std::string part = forgets ? "forget" : "retain";
    nn::ForwardInputs inputs;
    inputs.targets = nn::with_states(nn::next_tokens(tensor_of(golden["labels"][part], at::kLong)));
    inputs.targets.kinds =
        kinds_of(forgets ? std::vector{kForget, kForget} : std::vector{kRetain, kRetain});
    const auto kept = std::make_shared<FrozenModel>([&](auto batches) {
      const Tensor states = tensor_of(wanted["reference_activations"], at::kFloat);
      return HeadStates{std::vector<Tensor>(batches.size(), states), {}};
    });
    Steered(forgets ? nullptr : kept, target.to(at::kFloat)).refer({&inputs, 1});
    const nn::Targets& targets = inputs.targets;
    const auto loss_of = [&](Means means) {
      const ObjectivePointer objective = steered_states({.means = means});
      const Tensor states = tensor_of(wanted["activations"], at::kFloat).requires_grad_(true);
      const Counts step = objective->counts(targets);
      const Tensor rows =
          head.scores(states, {}, targets).log_likelihoods.sum(1, false, at::kDouble);
      const Weighing weighing = objective->weigh({rows, {}}, targets, step);
      head.loss(states, {}, targets, weighing.weights.unsqueeze(1), 0)
          .div(step.divisor())
          .backward();
      return std::pair(weighing.sums[0].item<double>() / step.divisor(), states.grad());
    };
    const auto [loss, gradient] = loss_of(Means::kOfMicroBatches);
    const double golden_loss = wanted[part + "_loss"].get<double>();
    EXPECT_NEAR(loss, golden_loss, 1e-5 * golden_loss) << part;
    numbers::expect_values(gradient, tensor_of(wanted[part + "_grad"], at::kFloat), part);
    // Our definition: the mean of the rows' means.
    const Tensor states = tensor_of(wanted["activations"], at::kDouble);
    const Tensor to = forgets ? target : tensor_of(wanted["reference_activations"], at::kDouble);
    const Tensor places = targets.tokens.ne(-100);
    const Tensor each = (states - to).square().mean(-1).mul(places).sum(1) / places.sum(1);
    EXPECT_NEAR(loss_of(Means::kOfStep).first, each.mean().item<double>(), 1e-5 * golden_loss)
        << part;
  }
}

/// Result of a head whose states are logits: the loss, its gradient by logits, and the report.
struct Measured {
  double loss = 0;
  Tensor gradient;
  Report report;
};

Measured measured(
    const Tensor& logits, const nn::Targets& targets, const ObjectivePointer& objective) {
  const Tensor leaf = logits.clone().requires_grad_(true);
  const Tensor same = at::eye(logits.size(-1), logits.options());
  const nn::Head head;
  const nn::Scores scores = head.scores(leaf.detach(), same, targets);
  const Counts step = objective->counts(targets);
  const Weighing weighing = objective->weigh({scores.log_likelihoods.sum(1), {}}, targets, step);
  head.loss(leaf, same, targets, weighing.weights.unsqueeze(1), 0).div(step.divisor()).backward();
  const Tensor& sums = weighing.sums;
  return {
      sums[0].item<double>() / step.divisor(),
      leaf.grad(),
      objective->report({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())})};
}

/// PDU: uniform logits for the forget set, and retention as a constraint.
TEST(Objectives, LevelLogitsAreThoseOfOpenUnlearning) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/losses.json");
  const nlohmann::json golden = read_json(shared_data() / "unlearning" / "golden" / "losses.json");
  const nlohmann::json& wanted = golden["methods"]["PDU_forget"];
  const Tensor forgets = tensor_of(golden["labels"]["forget"], at::kLong);
  nn::Targets targets = nn::next_tokens(forgets);
  targets.kinds = kinds_of({kForget, kForget});
  targets.weights = at::zeros({2}, at::kDouble);
  targets =
      nn::with_level(targets, forgets.ne(-100));  // at the labels' positions, as in the reference
  const Tensor logits = tensor_of(golden["logits"]["forget"], at::kDouble);
  const auto [loss, gradient, report] = measured(logits, targets, level_distribution());
  EXPECT_NEAR(loss, wanted["loss"].get<double>(), 1e-5);
  numbers::expect_values(
      gradient, tensor_of(wanted["grad_logits"]["forget"], at::kDouble), "level logits");

  // With a retain set, whose NLL has reference values: 0.5 F + 3 (R - 0.2).
  targets = nn::next_tokens(at::cat({forgets, tensor_of(golden["labels"]["retain"], at::kLong)}));
  targets.kinds = kinds_of({kForget, kForget, kRetain, kRetain});
  targets.weights = at::full({4}, 3.0, at::kDouble);
  targets =
      nn::with_level(targets, at::cat({forgets.ne(-100), at::zeros_like(forgets, at::kBool)}));
  const Tensor both = at::cat({logits, tensor_of(golden["logits"]["retain"], at::kDouble)});
  const auto [sum, of_both, told] =
      measured(both, targets, level_distribution({.gamma = 0.5, .retain_bound = 0.2}));
  numbers::expect_values(of_both.narrow(0, 0, 2), gradient * 0.5, "with a retain set");
  const double forget = told.metrics[0].second, retain = told.metrics[1].second;
  EXPECT_EQ(told.metrics[2], std::pair(std::string("retain_preference"), 3.0));
  EXPECT_NEAR(forget, loss, 1e-9);
  EXPECT_NEAR(sum, 0.5 * forget + 3 * retain, 1e-9);
  EXPECT_NEAR(told.loss, 0.5 * forget + 3 * (retain - 0.2), 1e-9);
  targets.kinds = kinds_of({nn::RowKind::kPlain, nn::RowKind::kPlain, kRetain, kRetain});
  EXPECT_NEAR(retain, measured(both, targets, gradient_difference()).loss, 1e-9);
}

/// CEU: the model's own distribution over the other tokens.
TEST(Objectives, OtherTokensAreLearnedAsInOpenUnlearning) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/losses.json");
  const nlohmann::json golden = read_json(shared_data() / "unlearning" / "golden" / "losses.json");
  const nlohmann::json& wanted = golden["methods"]["CEU_forget_n0"];
  nn::Targets targets = nn::next_tokens(tensor_of(golden["labels"]["forget"], at::kLong));
  targets.kinds = kinds_of({kForget, kForget});
  const Tensor are_targets = targets.tokens.ne(ops::kIgnoredTarget);
  targets = nn::with_other_tokens(targets, are_targets);
  const auto [loss, gradient, report] = measured(
      tensor_of(golden["logits"]["forget"], at::kDouble), targets, others_instead({.alpha = 0}));
  EXPECT_NEAR(loss, wanted["loss"].get<double>(), 1e-5);
  numbers::expect_values(gradient, tensor_of(wanted["grad_logits"]["forget"], at::kDouble), "CEU");
}

/// CEU's gradient keeps its digits for memorized tokens, whose probability float32 rounds to 1, and
/// for improbable ones.
TEST(Objectives, OtherTokensHaveAnAccurateGradient) {
  for (const double margin : {-12.0, 5.0, 15.0, 60.0}) {
    nn::Targets targets = nn::next_tokens(at::tensor({-100, 2, 4, 0}, at::kLong).unsqueeze(0));
    targets.kinds = kinds_of({kForget});
    const Tensor are_targets = targets.tokens.ne(ops::kIgnoredTarget);
    targets = nn::with_other_tokens(targets, are_targets);
    const Tensor tokens = at::tensor({2, 4, 0, 0}, at::kLong).view({1, 4, 1});
    const Tensor exact = at::arange(20, at::kDouble)
                             .remainder(7)
                             .view({1, 4, 5})
                             .scatter_add(2, tokens, at::full({1, 4, 1}, margin, at::kDouble));
    const Tensor others = exact.scatter(2, tokens, -1e30).softmax(2);
    const Tensor likelihood = exact.softmax(2).gather(2, tokens);
    const Tensor wanted = likelihood * (at::zeros_like(others).scatter(2, tokens, 1.0) - others) *
                          are_targets.unsqueeze(2) / 3;
    const auto [loss, gradient, report] =
        measured(exact.to(at::kFloat), targets, others_instead({.alpha = 0}));
    EXPECT_GT(loss, margin / 2);
    numbers::expect_values(gradient.to(at::kDouble), wanted, std::to_string(margin));
  }
}

/// Losses of KL and UNDIAL and their gradients by logits, with a head whose states are logits.
TEST(Objectives, DivergencesAreThoseOfOpenUnlearning) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/losses.json");
  const auto folder = shared_data() / "unlearning" / "golden";
  const nlohmann::json golden = read_json(folder / "losses.json");
  const auto logits_of = [&](const char* key) {
    return tensor_of(golden[key]["retain"], at::kDouble);
  };
  nn::Targets targets = nn::next_tokens(tensor_of(golden["labels"]["retain"], at::kLong));
  targets = nn::with_distributions(targets, at::ones_like(targets.tokens, at::kBool));
  targets.kinds = kinds_of({kRetain, kRetain});
  targets.distributions.states = logits_of("reference_logits");
  targets.distributions.vocabulary = at::eye(7, at::kDouble);
  const auto [loss, gradient, report] =
      measured(logits_of("logits"), targets, gradient_difference());
  const nlohmann::json& wanted = golden["methods"]["retain_KL"];
  EXPECT_NEAR(loss, wanted["loss"].get<double>(), 1e-6);
  numbers::expect_values(
      gradient, tensor_of(wanted["grad_logits"]["retain"], at::kDouble), "KL on the retain set");

  const nlohmann::json undial = read_json(folder / "token_metrics.json").at("undial");
  const Tensor logits = tensor_of(undial["logits"], at::kDouble);
  for (const bool is_upstream : {true, false}) {
    targets = nn::next_tokens(tensor_of(undial["labels"], at::kLong));
    const Tensor labels = targets.tokens, are_labels = labels.ne(ops::kIgnoredTarget);
    const Tensor positions =
        is_upstream ? at::arange(labels.size(1)).lt(labels.size(1) - 1).expand_as(labels)
                    : are_labels;
    targets = nn::with_distributions(
        targets,
        positions,
        at::where(are_labels, labels, at::full_like(labels, logits.size(-1) - 100)),
        at::full(labels.sizes(), undial["beta"].get<double>(), at::kDouble));
    targets.kinds = kinds_of({kForget});
    targets.distributions.states = tensor_of(undial["reference_logits"], at::kDouble);
    targets.distributions.vocabulary = at::eye(logits.size(-1), at::kDouble);
    const auto [lost, slope, told] = measured(logits, targets, lowered_distribution({.alpha = 0}));
    EXPECT_NEAR(
        lost,
        undial[is_upstream ? "loss_upstream" : "loss_answer_tokens_only"].get<double>(),
        2e-5);
    if (is_upstream) {
      EXPECT_NEAR(slope.norm().item<double>(), undial["grad_logits_l2"].get<double>(), 1e-6);
    }
  }
}

}  // namespace objective_test
}  // namespace lockstep::objective
