// Tests of unlearning targets, objectives and answer scores.
#include "train/tasks/unlearning.h"

#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "nn/testing.h"
#include "temporary_folder.h"
#include "train/batches/inputs.h"
#include "train/tasks/answer_scores.h"
#include "train/tasks/unlearning_suite.h"

namespace lockstep::train {
namespace unlearning_test {

config::UnlearningSection section_of(const char* method) {
  config::UnlearningSection section;
  section.method = method;
  return section;
}

/// A forget row of five tokens, whose answer is the last two, and a retain row of four tokens.
data::MicroBatch some_rows() {
  data::MicroBatch batch;
  batch.rows = 2;
  batch.length = 6;
  batch.ids = {1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 0, 0};
  batch.labels = {-100, -100, -100, 4, 5, -100, -100, -100, -100, 4, -100, -100};
  batch.samples = {0, 1};
  batch.roles = {data::RowRole::kForget, data::RowRole::kRetain};
  batch.groups = {0, 0};
  batch.lengths = {5, 4};
  batch.draws = {{0, 0}};
  return batch;
}

at::Tensor bools(std::initializer_list<int64_t> values) {
  return at::tensor(values, at::kLong).view({2, -1}).ne(0);
}

TEST(MarkDistributions, OfWhatIsKeptAllPositions) {
  config::UnlearningSection section = section_of("NPO");
  section.retain_loss = "KL";
  nn::ForwardInputs inputs = to_inputs(some_rows());
  mark_distributions(inputs, some_rows().lengths, section, 200);
  EXPECT_TRUE(
      inputs.targets.distributions.positions.equal(bools({0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0})));
  EXPECT_EQ(inputs.targets.distributions.lowered.sum().item<double>(), 0);
  EXPECT_TRUE(inputs.targets.counts.equal(at::tensor({2.0, 4.0}, at::kDouble)));
  section.retain_loss = "NLL";
  inputs = to_inputs(some_rows());
  mark_distributions(inputs, some_rows().lengths, section, 200);
  EXPECT_FALSE(inputs.targets.distributions.positions.defined());
}

TEST(MarkDistributions, OfWhatIsForgottenThoseWithAToken) {
  config::UnlearningSection section = section_of("UNDIAL");
  nn::ForwardInputs inputs = to_inputs(some_rows());
  mark_distributions(inputs, some_rows().lengths, section, 200);
  const at::Tensor fixed = bools({0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_TRUE(inputs.targets.distributions.positions.equal(fixed));
  EXPECT_TRUE(inputs.targets.distributions.lowered.equal(fixed.to(at::kDouble) * 10));
  EXPECT_EQ(inputs.targets.tokens[0][2].item<int64_t>(), 4);
  section.compatibility = "upstream";
  inputs = to_inputs(some_rows());
  mark_distributions(inputs, some_rows().lengths, section, 200);
  EXPECT_TRUE(
      inputs.targets.distributions.positions.equal(bools({1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_EQ(inputs.targets.tokens[0][0].item<int64_t>(), 100);  // column -100
  EXPECT_EQ(inputs.targets.tokens[1][2].item<int64_t>(), 4);    // unchanged retain token
}

TEST(MarkDistributions, OfWhatIsForgottenLevelLogits) {
  config::UnlearningSection section = section_of("PDU");
  nn::ForwardInputs inputs = to_inputs(some_rows());
  mark_distributions(inputs, some_rows().lengths, section, 200);
  const at::Tensor predicts = bools({0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_TRUE(inputs.targets.distributions.level.equal(predicts));
  EXPECT_FALSE(inputs.targets.distributions.positions.defined());
  section.compatibility = "upstream";
  section.retain_loss = "KL";
  inputs = to_inputs(some_rows());
  mark_distributions(inputs, some_rows().lengths, section, 200);
  EXPECT_TRUE(
      inputs.targets.distributions.level.equal(bools({0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(
      inputs.targets.distributions.positions.equal(bools({0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0})));
  EXPECT_TRUE(inputs.targets.counts.equal(at::tensor({2.0, 4.0}, at::kDouble)));
  EXPECT_EQ(inputs.targets.tokens[0][2].item<int64_t>(), -100);
}

/// PDU's dual ascent: starts at alpha, changes by the distance to the bound, never falls below 0.
TEST(RetainWeight, GrowsWhileTheLossIsAboveItsBound) {
  config::UnlearningSection section = section_of("PDU");
  section.alpha = 2;
  section.retain_loss_eps = 0.5;
  section.dual_step_size = 4;
  section.dual_warmup_epochs = 1;
  RetainWeight weight(section);
  EXPECT_FALSE(weight.follows_steps(0));
  EXPECT_TRUE(weight.follows_steps(1));
  EXPECT_FALSE(weight.follows_epochs(1));
  weight.follow(0.75);
  EXPECT_EQ(weight.value(), 3);
  weight.follow(std::nan(""));
  EXPECT_EQ(weight.value(), 3);
  nn::Targets targets = to_inputs(some_rows()).targets;
  weight.mark(targets);
  EXPECT_TRUE(targets.weights.equal(at::full({2}, 3.0, at::kDouble)));
  weight.follow(-1);
  EXPECT_EQ(weight.value(), 0);
  section.dual_update_upon = "epoch";
  EXPECT_TRUE(RetainWeight(section).follows_epochs(1));
  section.primal_dual = false;
  EXPECT_FALSE(RetainWeight(section).follows_epochs(1));
}

TEST(UnlearningObjective, HasTheMethodsOwnWeights) {
  EXPECT_FALSE(keeps_rows(section_of("GradAscent")));
  EXPECT_FALSE(keeps_rows(section_of("UNDIAL")));
  EXPECT_TRUE(needs_distributions(section_of("UNDIAL")));
  EXPECT_TRUE(needs_row_scores(section_of("DPO")));
  EXPECT_EQ(rows_of_unlearning(section_of("DPO")), 3);
  EXPECT_EQ(rows_of_unlearning(section_of("NPO")), 2);
  EXPECT_EQ(rows_of_unlearning(section_of("CEU")), 1);
  EXPECT_EQ(rows_of_unlearning(section_of("Finetune")), 1);
  // SimNPO: gamma 0.125, beta 4.5; log p is -1 for two tokens and -2 for one token.
  const nn::Targets targets = to_inputs(some_rows()).targets;
  const auto objective = unlearning_objective(section_of("SimNPO"));
  const at::Tensor sums = objective->measure(
      {at::tensor({-1.0, -2.0}, at::kDouble), {}}, targets, objective->counts(targets));
  const double forgotten = 2 / 4.5 * std::log1p(std::exp(-4.5 * 0.5));
  EXPECT_NEAR(sums[0].item<double>(), 0.125 * forgotten + 2, 1e-9);
}

TEST(CleanUp, TakesSpacesFromWhatHangsTogether) {
  EXPECT_EQ(
      clean_up_tokenization("It is n't so , is it ? He 's here . I 've"),
      "It isn't so, is it? He's here. I've");
}

/// The scores are the same on one rank and on three, because the batches are the same, and equal
/// those of the model itself.
TEST(AnswerReader, ScoresAnswersOnAnyNumberOfRanks) {
  const auto config = model::parse_model_config(nn::kSmallModels[1], "test");
  std::vector<data::EncodedAnswer> rows;
  for (int32_t i = 0; i < 7; ++i) {
    rows.push_back({{1, 2 + i, 3}, std::vector<int32_t>(static_cast<size_t>(i % 3), 4 + i)});
  }
  const auto score = [&](int ranks) {
    std::vector<AnswerScore> found;
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      parallel::ParallelGroups axes(world, {.data = ranks});
      const auto model = nn::make_model(config, at::kFloat, at::kCPU);
      nn::initialize(*model, 3);
      AnswerReader reader(*model, axes, nullptr, 2, at::kCPU);
      std::vector<AnswerScore> scores = reader.score(rows);
      if (world.rank() == ranks - 1) {
        found = std::move(scores);
      }
    });
    return found;
  };
  const std::vector<AnswerScore> one = score(1), three = score(3);
  ASSERT_EQ(one.size(), 7U);
  const auto model = nn::make_model(config, at::kFloat, at::kCPU);
  nn::initialize(*model, 3);
  nn::ForwardInputs inputs;
  inputs.ids = at::tensor({1, 4, 3, 6, 6}, at::kLong).view({1, 5});
  const at::Tensor log_p = model->logits(inputs).log_softmax(-1);
  for (size_t row = 0; row < one.size(); ++row) {
    EXPECT_EQ(one[row].log_likelihoods, three[row].log_likelihoods);
    EXPECT_EQ(one[row].likeliest, three[row].likeliest);
    EXPECT_EQ(one[row].log_likelihoods.size(), row % 3);
  }
  EXPECT_NEAR(one[2].log_likelihoods[1], log_p[0][3][6].item<double>(), 1e-5);
  EXPECT_EQ(one[0].loss(), 0);
  EXPECT_NEAR(one[2].loss(), -(one[2].log_likelihoods[0] + one[2].log_likelihoods[1]) / 2, 1e-12);
}

/// Compares with the model's logits and gradients.
TEST(AnswerReader, StandardScoresAndGradientNorms) {
  const auto config = model::parse_model_config(nn::kSmallModels[1], "test");
  const std::vector<data::EncodedAnswer> rows{{{1, 4, 3}, {6, 6}}, {{2}, {5}}, {{7, 7}, {}}};
  const auto model = nn::make_model(config, at::kFloat, at::kCPU);
  nn::initialize(*model, 3);
  nn::ForwardInputs inputs;
  inputs.ids = at::tensor({1, 4, 3, 6, 6}, at::kLong).view({1, 5});
  const at::Tensor log_p = model->logits(inputs)[0].log_softmax(-1).detach();
  const at::Tensor at_3 = log_p[3], p = at_3.exp();
  const at::Tensor mean = (p * at_3).sum();
  const double wanted =
      ((at_3[6] - mean) / ((p * (at_3 - mean).square()).sum()).sqrt()).item<double>();
  inputs.targets = nn::next_tokens(at::tensor({-100, -100, -100, 6, 6}, at::kLong).view({1, 5}));
  (model->loss(inputs) / 2).backward();
  double norms = 0;
  int64_t count = 0;
  model->visit_parameters([&](const std::string&, at::Tensor& parameter) {
    norms += parameter.grad().norm().item<double>();
    ++count;
    parameter.mutable_grad() = at::Tensor();
  });
  for (const int ranks : {1, 2}) {
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      parallel::ParallelGroups axes(world, {.data = ranks});
      const auto own = nn::make_model(config, at::kFloat, at::kCPU);
      nn::initialize(*own, 3);
      AnswerReader reader(*own, axes, nullptr, 2, at::kCPU);
      const auto scores = reader.standard_scores(rows);
      EXPECT_EQ(scores[0].size(), 2U);
      EXPECT_EQ(scores[1].size(), 1U);
      EXPECT_TRUE(scores[2].empty());
      EXPECT_NEAR(scores[0][1], wanted, 1e-4);
      EXPECT_NEAR(reader.gradient_norms(rows)[0], norms / static_cast<double>(count), 1e-5 * norms);
    });
  }
}

TEST(Tofu, ResultsAreOfOneModel) {
  const TemporaryFolder folder;
  config::UnlearningSection section;
  section.metrics = {"model_utility", "forget_quality"};
  nlohmann::json results = read_unlearning_results(folder.path(), section, "abc");
  results["model_utility"] = {{"agg_value", 0.5}};
  results["forget_quality"] = {{"agg_value", nullptr}};
  write_unlearning_results(folder.path(), results, section);
  EXPECT_EQ(read_unlearning_results(folder.path(), section, "abc"), results);
  std::ifstream summary(folder.path() / "TOFU_SUMMARY.json");
  EXPECT_EQ(nlohmann::json::parse(summary), nlohmann::json({{"model_utility", 0.5}}));
  try {
    (void)read_unlearning_results(folder.path(), section, "other");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("belongs to another model"), std::string::npos);
  }
}

TEST(Tofu, ARetainModelsResultsHaveItsRows) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "TOFU_EVAL.json";
  std::ofstream(path) << R"({"forget_truth_ratio": {"value_by_index": {"0": {"score": 0.5},
    "1": {"score": 0.25}}}, "mia_min_k": {"agg_value": 0.4}})";
  const RetainedResults found = read_retained(path, 2);
  EXPECT_EQ(found.truth_ratios, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(found.min_k_auc, 0.4);
  EXPECT_THROW((void)read_retained(path, 3), Error);
  std::ofstream(path) << "{}";
  EXPECT_THROW((void)read_retained(path, 2), Error);
}

}  // namespace unlearning_test
}  // namespace lockstep::train
