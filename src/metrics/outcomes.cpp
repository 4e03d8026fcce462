// Computes counts and scores of single-label classification.
#include "metrics/outcomes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::metrics {
namespace {

void check_lengths(const Outcomes& outcomes) {
  const size_t rows = outcomes.truth.size();
  if (outcomes.predicted.size() != rows ||
      (!outcomes.weights.empty() && outcomes.weights.size() != rows)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "{} true classes, {} predicted classes, {} weights",
            rows,
            outcomes.predicted.size(),
            outcomes.weights.size()));
  }
}

/// Counts for every class number that occurs.
struct Totals {
  std::map<int64_t, ClassCounts> of;
  double hits = 0, rows = 0;
};

Totals total(const Outcomes& outcomes) {
  check_lengths(outcomes);
  Totals totals;
  for (size_t row = 0; row < outcomes.truth.size(); ++row) {
    const double weight = outcomes.weight(row);
    const bool is_hit = outcomes.truth[row] == outcomes.predicted[row];
    totals.of[outcomes.truth[row]].support += weight;
    totals.of[outcomes.predicted[row]].predicted += weight;
    totals.of[outcomes.truth[row]].hits += is_hit ? weight : 0;
    totals.hits += is_hit ? weight : 0;
    totals.rows += weight;
  }
  return totals;
}

}  // namespace

std::vector<ClassCounts> count_classes(const Outcomes& outcomes, int64_t classes) {
  const Totals totals = total(outcomes);
  std::vector<ClassCounts> counts(static_cast<size_t>(classes));
  for (const auto& [number, count] : totals.of) {
    if (number >= 0 && number < classes) {
      counts[static_cast<size_t>(number)] = count;
    }
  }
  return counts;
}

Matrix confusion_matrix(const Outcomes& outcomes, int64_t classes) {
  check_lengths(outcomes);
  const auto size = static_cast<size_t>(classes);
  Matrix matrix(size, std::vector<double>(size, 0));
  const auto is_class = [&](int64_t number) { return number >= 0 && number < classes; };
  for (size_t row = 0; row < outcomes.truth.size(); ++row) {
    const int64_t truth = outcomes.truth[row], predicted = outcomes.predicted[row];
    if (is_class(truth) && is_class(predicted)) {
      matrix[static_cast<size_t>(truth)][static_cast<size_t>(predicted)] += outcomes.weight(row);
    }
  }
  return matrix;
}

Matrix by_true_class(const Matrix& matrix) {
  Matrix shares = matrix;
  for (std::vector<double>& row : shares) {
    double sum = 0;
    for (const double value : row) {
      sum += value;
    }
    for (double& value : row) {
      value = sum > 0 ? value / sum : 0;
    }
  }
  return shares;
}

double accuracy(const Outcomes& outcomes) {
  const Totals totals = total(outcomes);
  return totals.hits / totals.rows;
}

double balanced_accuracy(const Outcomes& outcomes) {
  double sum = 0;
  int64_t classes = 0;
  for (const auto& [number, count] : total(outcomes).of) {
    if (count.support > 0) {
      sum += count.hits / count.support;
      ++classes;
    }
  }
  return sum / static_cast<double>(classes);
}

double matthews_correlation(const Outcomes& outcomes) {
  const Totals totals = total(outcomes);
  double both = 0, predicted = 0, support = 0;
  for (const auto& [number, count] : totals.of) {
    both += count.predicted * count.support;
    predicted += count.predicted * count.predicted;
    support += count.support * count.support;
  }
  const double squared = totals.rows * totals.rows;
  const double root = std::sqrt((squared - predicted) * (squared - support));
  return root > 0 ? (totals.hits * totals.rows - both) / root : 0;
}

double cohen_kappa(const Outcomes& outcomes) {
  const Totals totals = total(outcomes);
  double both = 0;
  for (const auto& [number, count] : totals.of) {
    both += count.predicted * count.support;
  }
  const double chance = both / (totals.rows * totals.rows), agreed = totals.hits / totals.rows;
  return chance == 1 ? std::numeric_limits<double>::quiet_NaN() : (agreed - chance) / (1 - chance);
}

Softmax softmax(const float* logits, int64_t classes) {
  Softmax result;
  const float* largest =
      std::max_element(logits, logits + classes);  // first of several equal values
  result.likeliest = largest - logits;
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) {
    sum += std::exp(static_cast<double>(logits[k]) - static_cast<double>(*largest));
  }
  for (int64_t k = 0; k < classes; ++k) {
    const double logarithm =
        static_cast<double>(logits[k]) - static_cast<double>(*largest) - std::log(sum);
    result.logarithms.push_back(logarithm);
    result.probabilities.push_back(std::exp(logarithm));
  }
  return result;
}

}  // namespace lockstep::metrics
