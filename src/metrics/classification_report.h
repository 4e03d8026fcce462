// Precision, recall and F1 by class, in scikit-learn's layouts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "metrics/outcomes.h"

namespace lockstep::metrics {

/// A row of the report.
struct ClassFigures {
  std::string name;
  double precision = 0, recall = 0, f1 = 0, support = 0;
};

/// Figures without a value (0/0) are `zero_division`; those that are NaN are left out of means.
struct ClassificationReport {
  std::vector<ClassFigures> classes;  // by their numbers
  /// Of rows with one class each, where every number that occurs is a class; else the row
  /// `micro avg` is shown instead.
  std::optional<double> accuracy;
  ClassFigures micro, macro, weighted;
  std::optional<ClassFigures> samples;  // of rows with several labels
  bool has_weights = false;             // then support is shown as a float
};

/// names[k] is class k's. Error (kInternal): outcomes of unequal lengths.
ClassificationReport make_report(
    const Outcomes& outcomes, const std::vector<std::string>& names, double zero_division = 0);
/// Of rows with several labels: truth[row][k] and predicted[row][k] say whether it has label k.
ClassificationReport make_report(
    const std::vector<std::vector<bool>>& truth,
    const std::vector<std::vector<bool>>& predicted,
    const std::vector<std::string>& names,
    double zero_division = 0);

/// scikit-learn's classification_report, byte for byte, with so many digits.
std::string to_text(const ClassificationReport& report, int digits = 2);
/// Its output_dict=True; NaN is null.
nlohmann::ordered_json to_json(const ClassificationReport& report);

}  // namespace lockstep::metrics
