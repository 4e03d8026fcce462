// Downsamples long series for plots.
#pragma once

#include <cstdint>
#include <vector>

#include "watch/record/columns.h"

namespace lockstep::watch {

struct Points {
  std::vector<int64_t> steps;
  std::vector<double> values;  // same length as steps; NaN interrupts the line
};

/// Returns the exponential moving average with bias correction, as in TensorBoard: a_t = weight
/// a_{t-1} + (1 - weight) x_t, divided by 1 - weight^t. NaN and infinity are not averaged and
/// remain in the result. `weight` must be in [0, 1).
std::vector<double> smoothed(const std::vector<double>& values, double weight);

/// Returns the points with steps in [from, to], downsampled with M4 (Jugel et al., 2014). The steps
/// are divided into at most `buckets` intervals of equal width, and the first, minimum, maximum and
/// last value of each are kept. If the line is drawn with one pixel per interval, it is the same as
/// the line through all points. If `weight` is above 0, the whole series is smoothed first. If
/// there are at most 4 points per bucket, returns all points.
Points downsample(const Series& series, int64_t from, int64_t to, size_t buckets, double weight);

}  // namespace lockstep::watch
