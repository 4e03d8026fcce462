// Outcomes of a classifier, and the counts and scores computed from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::metrics {

/// True and predicted classes of single-label rows. A predicted number that is not a class (-1: no
/// valid answer) counts as an error for the row's class.
struct Outcomes {
  std::vector<int64_t> truth, predicted;  // [rows]
  std::vector<double> weights = {};       // [rows]; empty: all weights are 1

  double weight(size_t row) const { return weights.empty() ? 1 : weights[row]; }
};

/// Sums of row weights for one class or for several classes together.
struct ClassCounts {
  double hits = 0, predicted = 0, support = 0;
};

/// Returns the counts per class. Throws Error (kInternal) if the lists differ in length.
std::vector<ClassCounts> count_classes(const Outcomes& outcomes, int64_t classes);

/// matrix[t][p] is the total weight of the rows of class t that were predicted as p. Rows with a
/// class outside [0, classes) are skipped.
using Matrix = std::vector<std::vector<double>>;
Matrix confusion_matrix(const Outcomes& outcomes, int64_t classes);
/// Divides each row (true class) by its sum. Rows that sum to zero stay 0.
Matrix by_true_class(const Matrix& matrix);

/// Accuracy over all rows, including rows whose numbers are not classes.
double accuracy(const Outcomes& outcomes);
/// Mean recall of the classes with support; NaN if there are no rows.
double balanced_accuracy(const Outcomes& outcomes);
/// Matthews correlation coefficient (Gorodkin, 2004, for several classes); 0 for 0/0.
double matthews_correlation(const Outcomes& outcomes);
/// Cohen's kappa; NaN if the expected agreement by chance is 1.
double cohen_kappa(const Outcomes& outcomes);

/// Softmax of one row's logits.
struct Softmax {
  int64_t likeliest = 0;              // the lowest index if several are equal
  std::vector<double> probabilities;  // [classes]
  std::vector<double> logarithms;     // [classes], log probabilities
};
/// Computes the softmax of logits [classes] in float64.
Softmax softmax(const float* logits, int64_t classes);

}  // namespace lockstep::metrics
