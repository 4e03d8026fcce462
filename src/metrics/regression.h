// What predicted numbers are worth.
#pragma once

#include <vector>

namespace lockstep::metrics {

/// Of one output. NaN: without a value.
struct RegressionFigures {
  double mse = 0, rmse = 0, mae = 0;
  double r2 = 0;  // 1 - squared errors / squared deviations of the truth; NaN where all are equal
  double pearson = 0, spearman = 0;  // NaN where one side has one value alone
};

/// Error (kInternal): lists of unequal lengths.
RegressionFigures measure_numbers(
    const std::vector<double>& truth, const std::vector<double>& predicted);
/// The plain means of the figures of each output; rmse is the mean of theirs.
RegressionFigures mean_of(const std::vector<RegressionFigures>& outputs);

/// From 1 on; equal values have the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values);

}  // namespace lockstep::metrics
