// Downsamples (M4) and smooths series.
#include "watch/record/downsample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace lockstep::watch {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kKept = 4;  // points per bucket: first, minimum, maximum, last

/// Appends the points to keep of the values [begin, end), in order.
void keep_extremes(
    const Series& series,
    std::span<const double> values,
    size_t begin,
    size_t end,
    Points& points) {
  size_t least = end, greatest = end;
  double low = kInfinity, high = -kInfinity;  // of the finite values
  for (size_t i = begin; i < end; ++i) {
    const double value = values[i];
    if (value < low && value > -kInfinity) {
      low = value;
      least = i;
    }
    if (value > high && value < kInfinity) {
      high = value;
      greatest = i;
    }
  }
  std::array<size_t, kKept> kept{begin, least, greatest, end - 1};
  std::sort(kept.begin(), kept.end());
  for (size_t i = 0; i < kKept; ++i) {
    if (kept[i] < end && (i == 0 || kept[i] != kept[i - 1])) {
      points.steps.push_back(series.steps[kept[i]]);
      points.values.push_back(values[kept[i]]);
    }
  }
}

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result(values.size());
  double average = 0, rest = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      result[i] = values[i];
      continue;
    }
    average = weight * average + (1 - weight) * values[i];
    rest *= weight;
    result[i] = average / (1 - rest);
  }
  return result;
}

Points downsample(const Series& series, int64_t from, int64_t to, size_t buckets, double weight) {
  const auto first = std::lower_bound(series.steps.begin(), series.steps.end(), from);
  const auto last = std::upper_bound(first, series.steps.end(), to);
  const auto begin = static_cast<size_t>(first - series.steps.begin());
  const auto end = static_cast<size_t>(last - series.steps.begin());
  const std::vector<double> smooth =
      weight > 0 ? smoothed(series.values, weight) : std::vector<double>();
  const std::span<const double> values = weight > 0 ? smooth : series.values;
  Points points;
  if (begin >= end) {
    return points;
  }
  if (end - begin <= buckets * kKept) {
    points.steps.assign(first, last);
    points.values.assign(
        values.begin() + static_cast<ptrdiff_t>(begin),
        values.begin() + static_cast<ptrdiff_t>(end));
    return points;
  }
  const double span = static_cast<double>(series.steps[end - 1] - series.steps[begin]) + 1;
  const auto below = [](int64_t step, double limit) { return static_cast<double>(step) < limit; };
  size_t at = begin;
  for (size_t bucket = 1; bucket <= buckets && at < end; ++bucket) {
    const double edge = static_cast<double>(series.steps[begin]) +
                        span * static_cast<double>(bucket) / static_cast<double>(buckets);
    const auto here = series.steps.begin() + static_cast<ptrdiff_t>(at);
    const size_t next =
        bucket == buckets
            ? end
            : at + static_cast<size_t>(std::lower_bound(here, last, edge, below) - here);
    if (next > at) {
      keep_extremes(series, values, at, next, points);
    }
    at = next;
  }
  return points;
}

}  // namespace lockstep::watch
