// What scores of labels are worth, whatever is decided by them: curves, areas and calibration, as
// scikit-learn has them.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::metrics {

/// Of one label against the rest: whether each row has it, and how surely it is said to.
struct Ranking {
  std::vector<bool> truth;     // [rows]
  std::vector<double> scores;  // [rows]
};
/// rows[i][k]: of row i and label k.
using Scores = std::vector<std::vector<double>>;
using Truths = std::vector<std::vector<bool>>;

/// Label k's column.
Ranking ranking_of(const Truths& truth, const Scores& scores, size_t k);
/// All columns, one after another ("micro").
Ranking all_rankings(const Truths& truth, const Scores& scores);
/// Of rows with one class each. A class that is none (below 0) is that of no column.
Truths one_of_each(const std::vector<int64_t>& classes, int64_t count);

/// One point for each threshold, from the highest down; equal scores are one threshold.
struct Curve {
  std::vector<double> x, y;
};
/// x: the share of the others that are taken for the label; y: of those that have it. From (0, 0)
/// to (1, 1). Empty where all rows have the label, or none has.
Curve roc_curve(const Ranking& ranking);
/// x: recall, y: precision; from (0, 1). Empty where no row has the label.
Curve precision_recall_curve(const Ranking& ranking);

/// The area under the ROC curve by trapezoids; NaN where there is no curve.
double roc_auc(const Ranking& ranking);
/// The sum over thresholds of (R_n - R_(n-1)) P_n; 0 where no row has the label.
double average_precision(const Ranking& ranking);
/// The plain mean over columns; NaN where one of them is.
double mean_over_labels(
    const Truths& truth, const Scores& scores, double (*measure)(const Ranking& ranking));

/// The share of rows whose class is among the k likeliest; of equal scores the highest numbers are.
double top_k_accuracy(const std::vector<int64_t>& classes, const Scores& scores, int64_t k);
/// The mean over rows and their labels of how many of the labels that are scored as high are
/// theirs; a row with all labels or none counts 1.
double label_ranking_average_precision(const Truths& truth, const Scores& scores);
/// The mean over rows of the sum of (p - t)^2 over classes, halved for two (scikit-learn's
/// scale_by_half).
double brier_score(const std::vector<int64_t>& classes, const Scores& probabilities);

/// Rows by how sure they are said to be: `bins` equal parts (low, high] of [0, 1].
struct CalibrationBin {
  double low = 0, high = 0;
  int64_t rows = 0;
  double confidence = 0, accuracy = 0;  // means; 0 without rows
};
std::vector<CalibrationBin> calibration(
    const std::vector<double>& confidences, const std::vector<bool>& hits, int64_t bins);
/// The sum over bins of their share of the rows times |accuracy - confidence| (Guo et al., 2017).
double expected_calibration_error(const std::vector<CalibrationBin>& bins);

/// The threshold of the largest F1, among the midpoints of neighbouring scores and 0.5; of equals
/// the one nearest 0.5. A row is taken to have the label where its score is above the threshold.
double best_threshold(const Ranking& ranking);

}  // namespace lockstep::metrics
