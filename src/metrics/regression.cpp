// Implements regression metrics.
#include "metrics/regression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::metrics {
namespace {

double mean_value(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the Pearson correlation. NaN if one side is constant.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = mean_value(a), mean_b = mean_value(b);
  double both = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    of_a += (a[i] - mean_a) * (a[i] - mean_a);
    of_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  const double root = std::sqrt(of_a) * std::sqrt(of_b);
  return root > 0 ? std::clamp(both / root, -1.0, 1.0) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    for (end = begin; end < order.size() && values[order[end]] == values[order[begin]]; ++end) {
    }
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
    }
  }
  return ranks;
}

RegressionFigures measure_numbers(
    const std::vector<double>& truth, const std::vector<double>& predicted) {
  if (truth.size() != predicted.size()) {
    throw Error(
        ErrorKind::kInternal, fmt::format("{} numbers and {}", truth.size(), predicted.size()));
  }
  RegressionFigures figures;
  const double mean = mean_value(truth), rows = static_cast<double>(truth.size());
  double deviations = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double error = predicted[i] - truth[i];
    figures.mse += error * error / rows;
    figures.mae += std::abs(error) / rows;
    deviations += (truth[i] - mean) * (truth[i] - mean) / rows;
  }
  figures.rmse = std::sqrt(figures.mse);
  figures.r2 =
      deviations > 0 ? 1 - figures.mse / deviations : std::numeric_limits<double>::quiet_NaN();
  figures.pearson = correlation(truth, predicted);
  figures.spearman = correlation(ranks_of(truth), ranks_of(predicted));
  return figures;
}

RegressionFigures mean_of(const std::vector<RegressionFigures>& outputs) {
  RegressionFigures mean;
  for (double RegressionFigures::* figure :
       {&RegressionFigures::mse,
        &RegressionFigures::rmse,
        &RegressionFigures::mae,
        &RegressionFigures::r2,
        &RegressionFigures::pearson,
        &RegressionFigures::spearman}) {
    for (const RegressionFigures& output : outputs) {
      mean.*figure += output.*figure / static_cast<double>(outputs.size());
    }
  }
  return mean;
}

}  // namespace lockstep::metrics
