// Tests of best model selection and early stopping.
#include "train/best.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::train {
namespace best_test {

const std::vector<std::string> kMetrics{"accuracy", "f1", "f1_macro", "ece", "hamming_loss"};

BestRule rule_of(const char* metric, std::optional<int64_t> patience = {}, double threshold = 0) {
  config::TrainingSection training;
  training.metric_for_best_model = metric;
  training.early_stopping_patience = patience;
  training.early_stopping_threshold = threshold;
  return {training, kMetrics};
}

TEST(BestRule, KnowsWhichWayAMetricIsBetter) {
  for (const char* metric : {"accuracy", "eval_f1", "f1_macro"}) {
    EXPECT_TRUE(rule_of(metric).greater_is_better()) << metric;
  }
  for (const char* metric : {"loss", "eval_loss", "ece", "hamming_loss"}) {
    EXPECT_FALSE(rule_of(metric).greater_is_better()) << metric;
  }
  config::TrainingSection training;
  training.metric_for_best_model = "f1";
  training.greater_is_better = false;
  EXPECT_FALSE(BestRule(training, kMetrics).greater_is_better());
  EXPECT_FALSE(BestRule().greater_is_better());
}

TEST(BestRule, FindsMetricsByTheNamesThatUsersHaveForThem) {
  const std::vector<std::string> others{
      "perplexity", "token_accuracy", "roc_auc", "matthews_correlation", "f1_macro", "f1_micro"};
  EXPECT_EQ(find_metric("eval_accuracy", others), "token_accuracy");
  EXPECT_EQ(find_metric("auc", others), "roc_auc");
  EXPECT_EQ(find_metric("mcc", others), "matthews_correlation");
  EXPECT_EQ(find_metric("macro", others), "f1_macro");
  EXPECT_EQ(find_metric("f1", others), "");
  try {
    rule_of("acuracy");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("'accuracy'"), std::string::npos) << error.message();
    EXPECT_NE(error.remedy().find("loss, accuracy, f1"), std::string::npos) << error.remedy();
  }
}

TEST(BestRule, TheFirstOfEqualsStaysAndNanIsNeverBest) {
  const BestRule rule = rule_of("f1");
  Best best;
  EXPECT_FALSE(rule.observe(best, NAN, 1));
  EXPECT_TRUE(rule.observe(best, 0.5, 2));
  EXPECT_FALSE(rule.observe(best, 0.5, 3));
  EXPECT_TRUE(rule.observe(best, 0.6, 4));
  EXPECT_EQ(best.step, 4);
  EXPECT_FALSE(rule.stops(best));
}

/// Counter of EarlyStoppingCallback: an improvement within the threshold is the new best, but
/// counts as no improvement.
TEST(BestRule, StopsAfterItsPatience) {
  const BestRule rule = rule_of("loss", 2, 0.1);
  Best best;
  rule.observe(best, 1.0, 1);
  EXPECT_EQ(best.no_better, 0);
  EXPECT_TRUE(rule.observe(best, 0.95, 2));
  EXPECT_EQ(best.no_better, 1);
  EXPECT_FALSE(rule.stops(best));
  EXPECT_TRUE(rule.observe(best, 0.8, 3));
  EXPECT_EQ(best.no_better, 0);
  rule.observe(best, 0.85, 4);
  rule.observe(best, 0.79, 5);
  EXPECT_EQ(best.step, 5);
  EXPECT_TRUE(rule.stops(best));
}

/// An exact name takes precedence over the last words of another name, in any order.
TEST(BestRule, AnExactNameGoesFirst) {
  const std::vector<std::string> metrics{"f1_macro", "f1", "accuracy", "balanced_accuracy"};
  EXPECT_EQ(find_metric("f1", metrics), "f1");
  EXPECT_EQ(find_metric("accuracy", metrics), "accuracy");
  EXPECT_EQ(find_metric("eval_eval_accuracy", metrics), "");
  EXPECT_EQ(find_metric("", metrics), "");
  EXPECT_EQ(find_metric("eval_", metrics), "");
  EXPECT_EQ(find_metric("loss", {}), "loss");
  EXPECT_EQ(find_metric("f1", {}), "");
}

TEST(BestRule, AMetricThatIsNeverANumberStopsAfterItsPatience) {
  const BestRule rule = rule_of("f1", 2);
  Best best;
  EXPECT_FALSE(rule.observe(best, NAN, 1));
  EXPECT_FALSE(rule.stops(best));
  EXPECT_FALSE(rule.observe(best, NAN, 2));
  EXPECT_TRUE(rule.stops(best));
  EXPECT_FALSE(best.metric);
  EXPECT_TRUE(rule.observe(best, 0.1, 3));
  EXPECT_FALSE(rule.stops(best));
}

TEST(BestRule, TheBestCheckpointIsThatOfTheBestEvaluationWithOne) {
  const BestRule rule = rule_of("loss");
  Best best;
  EXPECT_FALSE(rule.observe_save(best, 1, "checkpoint-1"));  // not evaluated
  rule.observe(best, 1.0, 2);
  rule.observe(best, 3.0, 4);
  EXPECT_TRUE(rule.observe_save(best, 4, "checkpoint-4"));
  rule.observe(best, NAN, 6);
  EXPECT_FALSE(rule.observe_save(best, 6, "checkpoint-6"));
  rule.observe(best, 3.0, 8);
  EXPECT_FALSE(rule.observe_save(best, 8, "checkpoint-8"));
  rule.observe(best, 2.0, 10);
  EXPECT_TRUE(rule.observe_save(best, 10, "checkpoint-10"));
  EXPECT_EQ(best.step, 2);
  EXPECT_EQ(best.saved->step, 10);
  EXPECT_EQ(best.saved->checkpoint, "checkpoint-10");
}

/// A resumed run restores the best value from its checkpoint and continues counting.
TEST(BestRule, GoesOnFromWhatACheckpointKept) {
  const BestRule rule = rule_of("loss", 3);
  Best best{.metric = 1.0, .step = 7, .no_better = 2};
  EXPECT_FALSE(rule.stops(best));
  EXPECT_FALSE(rule.observe(best, 1.0, 8));
  EXPECT_TRUE(rule.stops(best));
  EXPECT_EQ(best.step, 7);
  EXPECT_TRUE(rule.observe(best, -INFINITY, 9));
  EXPECT_FALSE(rule.observe(best, -INFINITY, 10));
  EXPECT_EQ(best.step, 9);
}

}  // namespace best_test
}  // namespace lockstep::train
