// Predictions of a classifier and their metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/row_targets.h"
#include "metrics/classification_report.h"
#include "metrics/ranking.h"
#include "metrics/regression.h"
#include "model/head.h"
#include "objective/objectives.h"

namespace lockstep::train {

/// Prediction for one row.
struct Answer {
  std::vector<double> scores;      // [K]: probabilities, or numbers for regression
  std::vector<double> logarithms;  // [K]: log probabilities; empty for regression
  std::vector<double> against;     // [K]: log(1 - p); multi-label problems only
  std::vector<bool> taken;         // [K]: true for predicted labels; empty for regression
  int64_t likeliest = 0;           // predicted class; single-label problems only
};

/// Computes the prediction from a row's logits. `thresholds` has one entry per label, or for two
/// exclusive labels only the threshold of the second. A label is predicted if its probability
/// exceeds its threshold. If `thresholds` is empty, the most likely label is predicted, or for
/// multi-label problems all labels with a probability above 0.5.
Answer answer_of(
    const at::Tensor& logits,
    size_t row,
    model::ProblemType problem,
    const std::vector<double>& thresholds);

struct JudgeOptions {
  objective::ClassOptions loss = {};
  std::vector<double> thresholds = {};    // see answer_of()
  size_t positive = 1;                    // positive class of binary metrics (f1, roc_auc, ...)
  std::vector<std::string> metrics = {};  // names from metric_names(), in output order; empty: all
};

/// Results for the rows that have a label.
struct Judgement {
  int64_t rows = 0;
  double loss = 0;                                      // loss of the objective
  std::vector<std::pair<std::string, double>> metrics;  // without undefined metrics
  std::optional<metrics::ClassificationReport> report;  // for problems with labels
  metrics::Matrix confusion;                            // for single-label problems
  std::vector<metrics::RegressionFigures> numbers;      // for regression: one entry per output
  std::vector<double> losses;  // of every row, unweighted; NaN without a label

  /// Returns the value of a metric, or NaN if it is undefined.
  double metric(std::string_view name) const;
};
Judgement judge(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    const JudgeOptions& options = {});

/// Returns the names of the metrics that judge() computes. Progress lines show the first two.
std::span<const std::string_view> metric_names(model::ProblemType problem);

/// Returns the threshold with the largest F1 score for each label. For two exclusive labels,
/// returns only the second label's threshold, chosen for the largest F1 score of `positive`. Empty
/// for regression and for more than two exclusive labels.
std::vector<double> tune_thresholds(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    size_t positive = 1);

/// For single-label problems, returns the temperature T > 0 that minimizes the log loss of logits /
/// T (Guo et al., "On Calibration of Modern Neural Networks", 2017). Uses a golden-section search
/// for ln T in [-3, 3]. Returns 1 if no row has a label.
double fit_temperature(const at::Tensor& logits, const std::vector<int64_t>& classes);

}  // namespace lockstep::train
