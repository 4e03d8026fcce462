// What a classifier was asked and what it answered, and what is counted of that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::metrics {

/// Of rows with one class each. A number that is no class (-1: an answer that is none) counts
/// against its row's class.
struct Outcomes {
  std::vector<int64_t> truth, predicted;  // [rows]
  std::vector<double> weights = {};       // [rows]; empty: all are one

  double weight(size_t row) const { return weights.empty() ? 1 : weights[row]; }
};

/// Of one class, or of several together: sums of weights of rows.
struct ClassCounts {
  double hits = 0, predicted = 0, support = 0;
};

/// counts[k] is of class k. Error (kInternal): lists of unequal lengths.
std::vector<ClassCounts> count_classes(const Outcomes& outcomes, int64_t classes);

/// matrix[t][p]: the weight of the rows of class t that were taken for p, in [0, classes) both;
/// other rows are left out.
using Matrix = std::vector<std::vector<double>>;
Matrix confusion_matrix(const Outcomes& outcomes, int64_t classes);
/// By the sums of rows (true classes); rows without any are 0.
Matrix by_true_class(const Matrix& matrix);

/// Over all numbers that occur, classes or not.
double accuracy(const Outcomes& outcomes);
/// The mean recall of classes with support; NaN without rows.
double balanced_accuracy(const Outcomes& outcomes);
/// Matthews' correlation (Gorodkin, 2004, for many classes); 0 where it is 0/0.
double matthews_correlation(const Outcomes& outcomes);
/// Cohen's kappa; NaN where chance alone agrees always.
double cohen_kappa(const Outcomes& outcomes);

/// What a classifier's numbers say of a row.
struct Softmax {
  int64_t likeliest = 0;              // the lowest of equals
  std::vector<double> probabilities;  // [classes]
  std::vector<double> logarithms;     // [classes], of the probabilities
};
/// Of logits [classes], in float64.
Softmax softmax(const float* logits, int64_t classes);

}  // namespace lockstep::metrics
