// Threshold-free metrics of label scores, as defined by scikit-learn: curves, areas under curves
// and calibration.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::metrics {

/// One label against the rest: whether each row has the label, and its score.
struct Ranking {
  std::vector<bool> truth;     // [rows]
  std::vector<double> scores;  // [rows]
};
/// Indexed by row, then by label.
using Scores = std::vector<std::vector<double>>;
using Truths = std::vector<std::vector<bool>>;

/// Returns column k.
Ranking ranking_of(const Truths& truth, const Scores& scores, size_t k);
/// Concatenates all columns ("micro" average).
Ranking all_rankings(const Truths& truth, const Scores& scores);
/// One-hot rows for single-label classes. A negative class gives an all-false row.
Truths one_of_each(const std::vector<int64_t>& classes, int64_t count);

/// One point per threshold, in descending order of the threshold. Equal scores share a threshold.
struct Curve {
  std::vector<double> x, y;
};
/// ROC curve: x is the false positive rate, y is the true positive rate, from (0, 0) to (1, 1).
/// Empty if all rows have the label or none has it.
Curve roc_curve(const Ranking& ranking);
/// Precision-recall curve: x is recall, y is precision, starting at (0, 1). Empty if no row has the
/// label.
Curve precision_recall_curve(const Ranking& ranking);

/// Area under the ROC curve by the trapezoidal rule; NaN if the curve is empty.
double roc_auc(const Ranking& ranking);
/// Average precision: the sum over thresholds of (R_n - R_(n-1)) P_n; 0 if no row has the label.
double average_precision(const Ranking& ranking);
/// Unweighted mean of `measure` over the labels; NaN if it is NaN for any label.
double mean_over_labels(
    const Truths& truth, const Scores& scores, double (*measure)(const Ranking& ranking));

/// Share of rows whose class is among the k highest scores. If scores are equal, higher class
/// numbers rank first.
double top_k_accuracy(const std::vector<int64_t>& classes, const Scores& scores, int64_t k);
/// Mean over rows, and over the labels of each row, of the share of true labels among the labels
/// that score at least as high. A row with all labels or none counts as 1.
double label_ranking_average_precision(const Truths& truth, const Scores& scores);
/// Mean over rows of the sum over classes of (p - t)^2, halved for two classes (scikit-learn's
/// scale_by_half).
double brier_score(const std::vector<int64_t>& classes, const Scores& probabilities);

/// Rows grouped by confidence into `bins` equal intervals (low, high] of [0, 1].
struct CalibrationBin {
  double low = 0, high = 0;
  int64_t rows = 0;
  double confidence = 0, accuracy = 0;  // means over the bin's rows; 0 if the bin is empty
};
std::vector<CalibrationBin> calibration(
    const std::vector<double>& confidences, const std::vector<bool>& hits, int64_t bins);
/// Expected calibration error: the sum over bins of (share of the rows) * |accuracy - confidence|
/// (Guo et al., 2017).
double expected_calibration_error(const std::vector<CalibrationBin>& bins);

/// Returns the threshold with the largest F1, among the midpoints of adjacent scores and 0.5. If
/// several thresholds are equally good, returns the one nearest 0.5. A row is predicted to have the
/// label if its score is above the threshold.
double best_threshold(const Ranking& ranking);

}  // namespace lockstep::metrics
