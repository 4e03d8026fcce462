// A long series as the few points that a picture of it needs.
#pragma once

#include <cstdint>
#include <vector>

#include "watch/record/columns.h"

namespace lockstep::watch {

struct Points {
  std::vector<int64_t> steps;
  std::vector<double> values;  // as many; NaN: the line is interrupted here
};

/// The exponential moving average with its bias taken out, as TensorBoard smooths: a_t = weight
/// a_{t-1} + (1 - weight) x_t, divided by 1 - weight^t. NaN and infinity are passed through and not
/// averaged. `weight` in [0, 1).
std::vector<double> smoothed(const std::vector<double>& values, double weight);

/// The steps in [from, to], in at most `buckets` shares of equal width of which each keeps its
/// first, least, greatest and last value (Jugel et al., M4, 2014): a line through these is, on as
/// many pixels, the line through all. Smoothed first, over all steps, where `weight` is above 0.
/// All points where they are no more than 4 a bucket.
Points downsample(const Series& series, int64_t from, int64_t to, size_t buckets, double weight);

}  // namespace lockstep::watch
