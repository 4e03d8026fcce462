// What a classifier's answers are worth.
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

/// What a classifier answers to one row.
struct Answer {
  std::vector<double> scores;      // [K]: probabilities, or numbers
  std::vector<double> logarithms;  // [K] of the probabilities; of numbers none
  std::vector<double> against;     // [K] of labels that stand by themselves: log(1 - p)
  std::vector<bool> taken;  // [K]: the label, or labels, that it decides for; of numbers none
  int64_t likeliest = 0;    // of one label each: what it decides for
};

/// From a row's logits. `thresholds`: above which probability a label is told, one for each label,
/// or of two labels one alone, the second's; empty: 0.5, or the likeliest.
Answer answer_of(
    const at::Tensor& logits,
    size_t row,
    model::ProblemType problem,
    const std::vector<double>& thresholds);

struct JudgeOptions {
  objective::ClassOptions loss = {};
  std::vector<double> thresholds = {};  // as answer_of()
  size_t positive = 1;                  // of two labels, the one that f1, roc_auc and so on are of
  std::vector<std::string> metrics = {};  // of metric_names(), in this order; empty: all
};

/// Rows without a label are left out.
struct Judgement {
  int64_t rows = 0;
  double loss = 0;                                      // the objective's
  std::vector<std::pair<std::string, double>> metrics;  // what has no value is left out
  std::optional<metrics::ClassificationReport> report;  // of labels
  metrics::Matrix confusion;                            // of one label each
  std::vector<metrics::RegressionFigures> numbers;      // of each number
  std::vector<double> losses;  // [all rows]: each one's own, without weights; NaN without a label

  /// NaN where it has no value.
  double metric(std::string_view name) const;
};
Judgement judge(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    const JudgeOptions& options = {});

/// The metrics that judge() finds, by name; those that are shown first in a line of training are
/// the first two.
std::span<const std::string_view> metric_names(model::ProblemType problem);

/// For each label the threshold of the largest F1; of two labels, of which a row has one, the
/// second's, by which `positive` has its largest F1. Of numbers, and of one of many labels: none.
std::vector<double> tune_thresholds(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    size_t positive = 1);

/// Of one label each, the number T above 0 for which logits / T have the smallest log loss (Guo et
/// al., "On Calibration of Modern Neural Networks", 2017): by golden section over ln T from -3
/// to 3. 1 where no row has a label.
double fit_temperature(const at::Tensor& logits, const std::vector<int64_t>& classes);

}  // namespace lockstep::train
