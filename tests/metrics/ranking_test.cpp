// Compares with results of scikit-learn in classification_report_golden.json.
#include "metrics/ranking.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::metrics {
namespace ranking_test {

using nlohmann::json;

json case_of(const std::string& name) {
  std::ifstream file(
      std::string(LOCKSTEP_SOURCE_DIR) + "/tests/metrics/classification_report_golden.json");
  const json cases = json::parse(file).at("cases");
  for (const json& test : cases) {
    if (test.at("name") == name) {
      return test;
    }
  }
  throw std::out_of_range(name);
}

void expect_value(double found, const json& wanted, const char* what) {
  ASSERT_EQ(std::isnan(found), wanted.is_null()) << what;
  if (!wanted.is_null()) {
    EXPECT_NEAR(found, wanted.get<double>(), 1e-12) << what;
  }
}

TEST(Ranking, OfTwoClassesIsScikitLearns) {
  const json test = case_of("binary"), wanted = test.at("ranking");
  Ranking ranking{{}, test.at("scores").get<std::vector<double>>()};
  Scores probabilities;
  std::vector<double> confidences;
  std::vector<bool> hits;
  const auto classes = test.at("y_true").get<std::vector<int64_t>>();
  for (size_t row = 0; row < classes.size(); ++row) {
    const double p = ranking.scores[row];
    ranking.truth.push_back(classes[row] == 1);
    probabilities.push_back({1 - p, p});
    confidences.push_back(std::max(p, 1 - p));
    hits.push_back((p > 0.5) == (classes[row] == 1));
  }
  expect_value(roc_auc(ranking), wanted.at("roc_auc"), "AUC");
  expect_value(average_precision(ranking), wanted.at("average_precision"), "AP");
  expect_value(brier_score(classes, probabilities), wanted.at("brier"), "Brier");
  const auto bins = calibration(confidences, hits, 15);
  expect_value(expected_calibration_error(bins), wanted.at("ece_15"), "ECE");
  const Curve roc = roc_curve(ranking), both = precision_recall_curve(ranking);
  EXPECT_EQ(roc.x, wanted.at("roc_curve").at("fpr").get<std::vector<double>>());
  EXPECT_EQ(roc.y, wanted.at("roc_curve").at("tpr").get<std::vector<double>>());
  auto recall = wanted.at("precision_recall_curve").at("recall").get<std::vector<double>>();
  auto precision = wanted.at("precision_recall_curve").at("precision").get<std::vector<double>>();
  std::reverse(recall.begin(), recall.end());
  std::reverse(precision.begin(), precision.end());
  EXPECT_EQ(both.x, recall);
  EXPECT_EQ(both.y, precision);
}

TEST(Ranking, OfManyClassesIsScikitLearns) {
  const json test = case_of("multiclass_scores"), wanted = test.at("ranking");
  const auto scores = test.at("scores").get<Scores>();
  const auto classes = test.at("y_true").get<std::vector<int64_t>>();
  const Truths truth = one_of_each(classes, 3);
  expect_value(mean_over_labels(truth, scores, roc_auc), wanted.at("roc_auc_ovr_macro"), "macro");
  expect_value(roc_auc(all_rankings(truth, scores)), wanted.at("roc_auc_ovr_micro"), "micro");
  expect_value(top_k_accuracy(classes, scores, 2), wanted.at("top2"), "top 2");
  expect_value(brier_score(classes, scores), wanted.at("brier"), "Brier");
  std::vector<double> confidences;
  std::vector<bool> hits;
  for (size_t row = 0; row < scores.size(); ++row) {
    const auto likeliest = std::max_element(scores[row].begin(), scores[row].end());
    confidences.push_back(*likeliest);
    hits.push_back(likeliest - scores[row].begin() == classes[row]);
  }
  expect_value(
      expected_calibration_error(calibration(confidences, hits, 15)), wanted.at("ece_15"), "ECE");
}

TEST(Ranking, OfSeveralLabelsIsScikitLearns) {
  const json test = case_of("multilabel"), wanted = test.at("ranking");
  const auto scores = test.at("scores").get<Scores>();
  Truths truth;
  for (const json& row : test.at("y_true")) {
    truth.emplace_back();
    for (const json& value : row) {
      truth.back().push_back(value.get<int>() != 0);
    }
  }
  for (size_t k = 0; k < truth.front().size(); ++k) {
    const Ranking own = ranking_of(truth, scores, k);
    expect_value(roc_auc(own), wanted.at("roc_auc_each").at(k), "AUC");
    expect_value(average_precision(own), wanted.at("average_precision_each").at(k), "AP");
  }
  const Ranking all = all_rankings(truth, scores);
  expect_value(mean_over_labels(truth, scores, roc_auc), wanted.at("roc_auc_macro"), "macro");
  expect_value(roc_auc(all), wanted.at("roc_auc_micro"), "micro");
  expect_value(
      mean_over_labels(truth, scores, average_precision),
      wanted.at("average_precision_macro"),
      "AP macro");
  expect_value(average_precision(all), wanted.at("average_precision_micro"), "AP micro");
  expect_value(label_ranking_average_precision(truth, scores), wanted.at("lrap"), "LRAP");
}

TEST(Ranking, ThresholdsAreBetweenScores) {
  EXPECT_EQ(best_threshold({{true, false}, {0.9, 0.1}}), 0.5);
  EXPECT_NEAR(best_threshold({{true, true, false}, {0.4, 0.2, 0.1}}), 0.15, 1e-12);
  // For equal F1: 0.65 is nearer to 0.5 than 0.85, and 0.5 itself is preferred if it is equally
  // good.
  EXPECT_EQ(best_threshold({{false, false}, {0.9, 0.1}}), 0.5);
  EXPECT_NEAR(best_threshold({{true, false, false}, {0.9, 0.8, 0.6}}), 0.85, 1e-12);
  EXPECT_EQ(best_threshold({{}, {}}), 0.5);
}

}  // namespace ranking_test
}  // namespace lockstep::metrics
