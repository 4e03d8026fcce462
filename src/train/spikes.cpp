// Detects spikes in a sequence of values.
#include "train/spikes.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::train {
namespace {

double at_share(std::vector<double>& values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

std::optional<Spikes::Spike> Spikes::look(double value) const {
  if (!std::isfinite(value) || recent_.size() < kFewest) {
    return std::nullopt;
  }
  std::vector<double> values(recent_.begin(), recent_.end());
  const double median = at_share(values, 0.5), quantile = at_share(values, kQuantile);
  if (value > kTimes * quantile && value - median > kReaches * (quantile - median)) {
    return Spike{value, median, quantile};
  }
  return std::nullopt;
}

std::optional<Spikes::Spike> Spikes::observe(double value) {
  if (!std::isfinite(value)) {
    return std::nullopt;
  }
  const std::optional<Spike> found = look(value);
  recent_.push_back(found ? kTimes * found->quantile : value);
  if (recent_.size() > kWindow) {
    recent_.pop_front();
  }
  return found;
}

}  // namespace lockstep::train
