// Regression metrics: errors, R2 and correlations.
#pragma once

#include <vector>

namespace lockstep::metrics {

/// Metrics of one output. NaN means undefined.
struct RegressionFigures {
  double mse = 0, rmse = 0, mae = 0;
  double r2 =
      0;  // 1 - squared errors / squared deviations of the truth; NaN if the truth is constant
  double pearson = 0, spearman = 0;  // NaN if one side is constant
};

/// Computes the metrics of one output. Throws Error (kInternal) if the lists differ in length.
RegressionFigures measure_numbers(
    const std::vector<double>& truth, const std::vector<double>& predicted);
/// Returns the unweighted means over the outputs. rmse is the mean of the outputs' rmse.
RegressionFigures mean_of(const std::vector<RegressionFigures>& outputs);

/// Returns the ranks of the values, starting at 1. Equal values get the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values);

}  // namespace lockstep::metrics
