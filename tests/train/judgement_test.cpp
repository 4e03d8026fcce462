// Tests of classification metrics, thresholds and calibration.
#include "train/judgement/judgement.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "train/epoch_rows.h"
#include "train/judging.h"

namespace lockstep::train {
namespace judgement_test {

constexpr auto kClassifier = model::HeadSpec::Kind::kClassifier;
const model::HeadSpec kTwo{kClassifier, {"no", "yes"}};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(Judgement, IsOfRowsWithAClass) {
  const at::Tensor logits = at::tensor({0.F, 1.F, 2.F, 0.F, 5.F, 5.F, 9.F, 0.F}).view({4, 2});
  const data::RowTargets targets{{1, 1, 0, data::kNoClass}, {}};
  const Judgement plain = judge(logits, targets, kTwo);
  const double first = std::log1p(std::exp(-1.0)), second = 2 + std::log1p(std::exp(-2.0)),
               third = std::log(2.0);
  EXPECT_EQ(plain.rows, 3);
  EXPECT_NEAR(plain.loss, (first + second + third) / 3, 1e-12);
  EXPECT_NEAR(plain.metric("accuracy"), 2.0 / 3, 1e-12);  // the first of equal scores
  EXPECT_NEAR(plain.losses[1], second, 1e-12);
  EXPECT_TRUE(std::isnan(plain.losses[3]));
  const Judgement weighed = judge(logits, targets, kTwo, {{{3, 1}, 2}});
  const auto focal = [](double loss) { return std::pow(1 - std::exp(-loss), 2) * loss; };
  EXPECT_NEAR(weighed.loss, (focal(first) + focal(second) + 3 * focal(third)) / 5, 1e-12);
  EXPECT_EQ(judge(logits, {std::vector<int64_t>(4, data::kNoClass), {}}, kTwo).rows, 0);
}

TEST(Judgement, HasTheLossOfTraining) {
  const at::Tensor logits =
      at::tensor({0.3F, -1.F, 2.F, 0.5F, 0.1F, -0.7F, 1.5F, 0.F, -2.F}).view({3, 3});
  const at::Tensor classes = at::tensor({2, 0, 1}, at::kLong);
  const objective::ClassOptions smoothed{{1, 2, 0.5}, 0, 0.2};
  const model::HeadSpec three{kClassifier, {"a", "b", "c"}};
  EXPECT_NEAR(
      judge(logits, {{2, 0, 1}, {}}, three, {smoothed}).loss,
      at::cross_entropy_loss(
          logits.to(at::kDouble),
          classes,
          at::tensor(smoothed.weights, at::kDouble),
          at::Reduction::Mean,
          -100,
          0.2)
          .item<double>(),
      1e-12);
  model::HeadSpec labels = three;
  labels.problem = model::ProblemType::kMultiLabel;
  const std::vector<float> wanted{1, 0, 1, 0, 0, 0, 0, 1, 1};
  const at::Tensor told = at::tensor(wanted).view({3, 3}).to(at::kDouble);
  EXPECT_NEAR(
      judge(logits, {{0, 0, 0}, wanted}, labels, {{{1, 2, 0.5}}}).loss,
      at::binary_cross_entropy_with_logits(
          logits.to(at::kDouble), told, {}, at::tensor({1.0, 2.0, 0.5}, at::kDouble))
          .item<double>(),
      1e-12);
  labels.problem = model::ProblemType::kRegression;
  EXPECT_NEAR(
      judge(logits, {{0, 0, 0}, wanted}, labels).loss,
      at::mse_loss(logits.to(at::kDouble), told).item<double>(),
      1e-12);
}

TEST(Judgement, OfSeveralLabelsTellsEachByItself) {
  const model::HeadSpec head{kClassifier, {"a", "b"}, model::ProblemType::kMultiLabel};
  const at::Tensor logits = at::tensor({1.F, -1.F, 0.F, 2.F, -3.F, -0.5F}).view({3, 2});
  const data::RowTargets targets{{0, 0, 0}, {1, 0, 1, 1, 0, 1}};
  const Judgement found = judge(logits, targets, head);
  EXPECT_NEAR(found.metric("accuracy"), 1.0 / 3, 1e-12);
  EXPECT_NEAR(found.metric("hamming_loss"), 2.0 / 6, 1e-12);
  EXPECT_NEAR(found.metric("f1"), 2 * 2.0 / (2 * 2 + 0 + 2), 1e-12);
  EXPECT_NEAR(found.metric("jaccard_samples"), (1 + 0.5 + 0) / 3, 1e-12);
  EXPECT_EQ(answer_of(logits, 1, head.problem, {}).taken, (std::vector<bool>{false, true}));
  // Thresholds that classify both rows of "a", and of "b", correctly.
  const std::vector<double> thresholds = tune_thresholds(logits, targets, head);
  ASSERT_EQ(thresholds.size(), 2U);
  EXPECT_NEAR(thresholds[0], (sigmoid(0) + sigmoid(-3)) / 2, 1e-12);
  EXPECT_NEAR(thresholds[1], (sigmoid(-0.5) + sigmoid(-1)) / 2, 1e-12);
  EXPECT_EQ(judge(logits, targets, head, {{}, thresholds}).metric("accuracy"), 1);
}

TEST(Judgement, OfTwoLabelsHasOneThreshold) {
  const at::Tensor logits = at::tensor({2.F, 0.F, 1.F, 0.F, 3.F, 0.F}).view({3, 2});
  const data::RowTargets targets{{1, 1, 0}, {}};
  EXPECT_EQ(judge(logits, targets, kTwo).metric("f1"), 0);
  const std::vector<double> thresholds = tune_thresholds(logits, targets, kTwo);
  ASSERT_EQ(thresholds.size(), 1U);
  EXPECT_EQ(judge(logits, targets, kTwo, {{}, thresholds}).metric("f1"), 1);
  EXPECT_TRUE(tune_thresholds(at::zeros({3, 3}), targets, {kClassifier, {"a", "b", "c"}}).empty());
}

TEST(Judgement, LooksForTheLabelThatIsPositive) {
  const at::Tensor logits =
      at::tensor({3.F, 0.F, 0.F, 1.F, 2.F, 0.F, 0.F, 2.F, 1.F, 0.F}).view({5, 2});
  const data::RowTargets targets{{0, 0, 1, 1, 0}, {}};
  data::RowTargets turned = targets;
  for (int64_t& each : turned.classes) {
    each = 1 - each;
  }
  const Judgement first = judge(logits, targets, kTwo, {.positive = 0});
  const Judgement second = judge(logits, targets, kTwo);
  // Equals the other label's metric if the two labels are swapped.
  const Judgement other = judge(logits.flip(1), turned, kTwo);
  for (const char* name : {"f1", "precision", "recall", "roc_auc", "average_precision"}) {
    EXPECT_NEAR(first.metric(name), other.metric(name), 1e-12) << name;
  }
  EXPECT_NEAR(first.metric("average_precision"), (1 + 2.0 / 3 + 3.0 / 4) / 3, 1e-12);
  EXPECT_NEAR(second.metric("average_precision"), (1 + 2.0 / 4) / 2, 1e-12);
  EXPECT_EQ(first.metric("matthews_correlation"), second.metric("matthews_correlation"));
}

TEST(Judgement, TheThresholdOfTheFirstLabelIsSaidByTheSecond) {
  // "no" is predicted if its logit exceeds 1.5: rows of "no" have 3 and 2, rows of "yes" have 1 and
  // 1.2.
  const at::Tensor logits = at::tensor({3.F, 0.F, 2.F, 0.F, 1.F, 0.F, 1.2F, 0.F}).view({4, 2});
  const data::RowTargets targets{{0, 0, 1, 1}, {}};
  EXPECT_LT(judge(logits, targets, kTwo, {.positive = 0}).metric("f1"), 1);
  const std::vector<double> thresholds = tune_thresholds(logits, targets, kTwo, 0);
  ASSERT_EQ(thresholds.size(), 1U);
  EXPECT_NEAR(thresholds[0], 1 - (sigmoid(2) + sigmoid(1.2)) / 2, 1e-6);
  EXPECT_EQ(
      judge(logits, targets, kTwo, {.thresholds = thresholds, .positive = 0}).metric("f1"), 1);
}

TEST(Judgement, GivesTheMetricsThatAreAskedForInTheirOrder) {
  const at::Tensor logits = at::tensor({3.F, 0.F, 0.F, 1.F}).view({2, 2});
  const data::RowTargets targets{{0, 0}, {}};
  const Judgement some =
      judge(logits, targets, kTwo, {.metrics = {"f1_micro", "roc_auc", "accuracy"}});
  ASSERT_EQ(some.metrics.size(), 2U) << "of one label alone there is no area";
  EXPECT_EQ(some.metrics[0], std::pair(std::string("f1_micro"), 0.5));
  EXPECT_EQ(some.metrics[1].first, "accuracy");
  EXPECT_TRUE(some.report.has_value());
}

TEST(Judging, IsThatOfTheConfiguration) {
  config::TaskSection task;
  task.metrics = {"mcc", "f1", "matthews_correlation"};
  task.positive_label = "no";
  JudgeOptions options;
  take_judging(task, kTwo, options);
  EXPECT_EQ(options.metrics, (std::vector<std::string>{"matthews_correlation", "f1"}));
  EXPECT_EQ(options.positive, 0U);
  const auto told = [&](const model::HeadSpec& head) {
    try {
      take_judging(task, head, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(told({kClassifier, {"a", "b", "c"}}).find("one of two labels"), std::string::npos);
  task.positive_label = "yess";
  EXPECT_NE(told(kTwo).find("Did you mean 'yes'?"), std::string::npos);
  task.positive_label = "";
  EXPECT_EQ(told({kClassifier, {"a", "b", "c"}}), "");
  EXPECT_NE(
      told({kClassifier, {"x"}, model::ProblemType::kRegression}).find("has no metric \"mcc\""),
      std::string::npos);
  task.metrics = {"loss"};
  EXPECT_NE(told(kTwo).find("always reported"), std::string::npos);
}

TEST(EpochRows, AreMeansOverTheRowsOfAllSteps) {
  EpochRows rows;
  EXPECT_TRUE(rows.values().empty());
  rows.add(2, 0.5, 6);
  rows.add(std::numeric_limits<double>::infinity(), 0.5, 6);  // skipped
  rows.add(1, 1, 2);
  const EpochRows again = epoch_rows_of(nlohmann::json::parse(to_json(rows).dump()));
  EXPECT_EQ(again.text(2), "  epoch 2.00  train_loss 1.7500  train_accuracy 0.6250");
  EpochRows numbers;
  numbers.add(3, std::nullopt, 4);
  EXPECT_EQ(epoch_rows_of(to_json(numbers)).text(1), "  epoch 1.00  train_loss 3.0000");
}

TEST(Judgement, OfNumbersLeavesOutWhatHasNoValue) {
  const model::HeadSpec head{kClassifier, {"x"}, model::ProblemType::kRegression};
  const at::Tensor logits = at::tensor({1.F, 1.F, 1.F}).view({3, 1});
  const Judgement found = judge(logits, {{0, 0, data::kNoClass}, {0, 2, 0}}, head);
  EXPECT_EQ(found.rows, 2);
  EXPECT_EQ(found.metric("mse"), 1);
  EXPECT_TRUE(std::isnan(found.metric("pearson")));
  EXPECT_FALSE(found.report.has_value());
}

TEST(Temperature, MakesTheLogLossSmallest) {
  // Three of four rows are correct: p = 3/4 for 2 / T = ln 3.
  const at::Tensor logits =
      at::tensor({1.0F, -1.0F, 1.0F, -1.0F, 1.0F, -1.0F, 1.0F, -1.0F}).view({4, 2});
  EXPECT_NEAR(fit_temperature(logits, {0, 0, 1, 0}), 2 / std::log(3.0), 1e-7);
  // Rows without a label are ignored; if there are no others, the temperature is 1.
  const at::Tensor more = at::cat({logits, at::tensor({9.0F, 1.0F}).view({1, 2})});
  EXPECT_NEAR(fit_temperature(more, {0, 0, 1, 0, data::kNoClass}), 2 / std::log(3.0), 1e-7);
  EXPECT_EQ(fit_temperature(logits, std::vector<int64_t>(4, data::kNoClass)), 1);
  // All correct: the result is the lower bound of the search.
  EXPECT_NEAR(fit_temperature(logits, {0, 0, 0, 0}), std::exp(-3.0), 1e-6);
}

}  // namespace judgement_test
}  // namespace lockstep::train
