// Classification report: precision, recall and F1 per class, in scikit-learn's formats.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "metrics/outcomes.h"

namespace lockstep::metrics {

/// Row of the report.
struct ClassFigures {
  std::string name;
  double precision = 0, recall = 0, f1 = 0, support = 0;
};

/// Classification report. Undefined values (0/0) are set to `zero_division`. Means skip NaN.
struct ClassificationReport {
  std::vector<ClassFigures> classes;  // indexed by class number
  /// Set for single-label rows if every number that occurs is a class. Otherwise the report has a
  /// `micro avg` row.
  std::optional<double> accuracy;
  ClassFigures micro, macro, weighted;
  std::optional<ClassFigures> samples;  // multi-label rows only
  bool has_weights = false;             // if true, support is printed as a float
};

/// Computes the report for single-label rows. names[k] is the name of class k. Throws Error
/// (kInternal) if the lists of `outcomes` differ in length.
ClassificationReport make_report(
    const Outcomes& outcomes, const std::vector<std::string>& names, double zero_division = 0);
/// Computes the report for multi-label rows. truth[row][k] and predicted[row][k] are true if the
/// row has label k.
ClassificationReport make_report(
    const std::vector<std::vector<bool>>& truth,
    const std::vector<std::vector<bool>>& predicted,
    const std::vector<std::string>& names,
    double zero_division = 0);

/// Returns the report with `digits` decimals, byte for byte as printed by scikit-learn's
/// classification_report.
std::string to_text(const ClassificationReport& report, int digits = 2);
/// Returns the report in the layout of scikit-learn's output_dict=True. NaN becomes null.
nlohmann::ordered_json to_json(const ClassificationReport& report);

}  // namespace lockstep::metrics
