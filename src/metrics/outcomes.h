// Classifier outcomes and the counts and scores computed from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::metrics {

/// True and predicted classes of single-label rows. A prediction that is not a class (-1: no valid
/// answer) counts as an error for the row's true class.
struct Outcomes {
  std::vector<int64_t> truth, predicted;  // [rows]
  std::vector<double> weights = {};       // [rows]; empty: all weights are 1

  double weight(size_t row) const { return weights.empty() ? 1 : weights[row]; }
};

/// Sums of row weights for one or several classes.
struct ClassCounts {
  double hits = 0, predicted = 0, support = 0;
};

/// Returns the counts per class. Throws Error (kInternal) if the lists differ in length.
std::vector<ClassCounts> count_classes(const Outcomes& outcomes, int64_t classes);

/// matrix[t][p] is the total weight of the rows of class t that were predicted as p. Rows with a
/// class outside [0, classes) are skipped.
using Matrix = std::vector<std::vector<double>>;
Matrix confusion_matrix(const Outcomes& outcomes, int64_t classes);
/// Divides each row (true class) by its sum. Rows that sum to zero remain zero.
Matrix by_true_class(const Matrix& matrix);

/// Returns the accuracy over all rows, including rows whose numbers are not classes.
double accuracy(const Outcomes& outcomes);
/// Returns the mean recall of the classes with support. NaN if there are no rows.
double balanced_accuracy(const Outcomes& outcomes);
/// Returns the Matthews correlation coefficient (Gorodkin, 2004, for several classes). 0 for 0/0.
double matthews_correlation(const Outcomes& outcomes);
/// Returns Cohen's kappa. NaN if the expected agreement by chance is 1.
double cohen_kappa(const Outcomes& outcomes);

/// Softmax of one row's logits.
struct Softmax {
  int64_t likeliest = 0;              // most likely class; lowest index of several equal ones
  std::vector<double> probabilities;  // [classes]
  std::vector<double> logarithms;     // log probabilities, [classes]
};
/// Computes the softmax of logits [classes] in float64.
Softmax softmax(const float* logits, int64_t classes);

}  // namespace lockstep::metrics
