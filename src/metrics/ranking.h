// Threshold-free metrics of label scores, as defined by scikit-learn: curves, areas under curves
// and calibration.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::metrics {

/// One label against the rest: true if the row has the label, and the row's score for it.
struct Ranking {
  std::vector<bool> truth;     // [rows]
  std::vector<double> scores;  // [rows]
};
/// Label indicators and scores, indexed by row, then by label.
using Scores = std::vector<std::vector<double>>;
using Truths = std::vector<std::vector<bool>>;

/// Returns column k as a ranking.
Ranking ranking_of(const Truths& truth, const Scores& scores, size_t k);
/// Concatenates all columns (for the "micro" average).
Ranking all_rankings(const Truths& truth, const Scores& scores);
/// Returns one-hot rows for single-label classes. A negative class gives an all-false row.
Truths one_of_each(const std::vector<int64_t>& classes, int64_t count);

/// Curve with one point per threshold, in descending order of threshold. Equal scores share a
/// threshold.
struct Curve {
  std::vector<double> x, y;
};
/// Returns the ROC curve: x is the false positive rate, y is the true positive rate, from (0, 0) to
/// (1, 1). Empty if all rows have the label or no row has it.
Curve roc_curve(const Ranking& ranking);
/// Returns the precision-recall curve: x is recall, y is precision, starting at (0, 1). Empty if no
/// row has the label.
Curve precision_recall_curve(const Ranking& ranking);

/// Returns the area under the ROC curve by the trapezoidal rule. NaN if the curve is empty.
double roc_auc(const Ranking& ranking);
/// Returns the average precision: the sum over thresholds of (R_n - R_(n-1)) P_n. 0 if no row has
/// the label.
double average_precision(const Ranking& ranking);
/// Returns the unweighted mean of `measure` over the labels. NaN if it is NaN for any label.
double mean_over_labels(
    const Truths& truth, const Scores& scores, double (*measure)(const Ranking& ranking));

/// Returns the share of rows whose class is among the k highest scores. Among equal scores, higher
/// class numbers rank first.
double top_k_accuracy(const std::vector<int64_t>& classes, const Scores& scores, int64_t k);
/// Returns the mean, over rows and over the labels of each row, of the share of true labels among
/// the labels that score at least as high. A row with all labels or none counts as 1.
double label_ranking_average_precision(const Truths& truth, const Scores& scores);
/// Returns the mean over rows of the sum over classes of (p - t)^2, halved for two classes
/// (scikit-learn's scale_by_half).
double brier_score(const std::vector<int64_t>& classes, const Scores& probabilities);

/// One of `bins` equal confidence intervals (low, high] of [0, 1], with the rows in it.
struct CalibrationBin {
  double low = 0, high = 0;
  int64_t rows = 0;
  double confidence = 0, accuracy = 0;  // means over the rows; 0 if the bin is empty
};
std::vector<CalibrationBin> calibration(
    const std::vector<double>& confidences, const std::vector<bool>& hits, int64_t bins);
/// Returns the expected calibration error: the sum over bins of (share of the rows) * |accuracy -
/// confidence| (Guo et al., 2017).
double expected_calibration_error(const std::vector<CalibrationBin>& bins);

/// Returns the threshold with the highest F1 among 0.5 and the midpoints of adjacent scores. Among
/// several, returns the one nearest to 0.5. A row is predicted to have the label if its score is
/// above the threshold.
double best_threshold(const Ranking& ranking);

}  // namespace lockstep::metrics
