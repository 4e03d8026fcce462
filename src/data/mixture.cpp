// Interleaves data sources fairly.
#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

/// Integer value of the largest weight. Products with the number of samples fit 128 bits.
constexpr double kUnits = double{1 << 30};

__extension__ using Wide = __int128;

}  // namespace

MixtureOrder::MixtureOrder(std::vector<MixtureSource> sources)
    : sources_(std::move(sources)),
      units_(sources_.size()),
      taken_(sources_.size()),
      phase_taken_(sources_.size()) {
  if (sources_.empty()) {
    throw Error(ErrorKind::kConfig, "data.mixture has no sources", "name at least one");
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    const MixtureSource& source = sources_[i];
    if (source.sequences < 1 || !(source.weight > 0) || !std::isfinite(source.weight) ||
        source.max_epochs.value_or(1) < 1) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "source {} of data.mixture has {} sequences, weight {} and max_epochs {}",
              i + 1,
              source.sequences,
              source.weight,
              source.max_epochs.value_or(1)),
          "weights must be above 0 and max_epochs at least 1, and every source must contain text");
    }
  }
  begin_phase();
}

bool MixtureOrder::is_used_up(size_t source) const {
  const std::optional<int64_t>& most = sources_[source].max_epochs;
  return most && taken_[source] / sources_[source].sequences >= *most;
}

void MixtureOrder::begin_phase() {
  double largest = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    largest = is_used_up(i) ? largest : std::max(largest, sources_[i].weight);
  }
  whole_ = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    units_[i] = is_used_up(i)
                    ? 0
                    : std::max<int64_t>(1, std::llround(sources_[i].weight / largest * kUnits));
    whole_ += units_[i];
  }
  std::fill(phase_taken_.begin(), phase_taken_.end(), 0);
  phase_drawn_ = 0;
}

MixtureOrder::Sample MixtureOrder::next() {
  if (whole_ == 0) {
    throw Error(
        ErrorKind::kData,
        fmt::format("all sources of data.mixture are exhausted after {} sequences", drawn_),
        "increase max_epochs of a source, or train fewer steps");
  }
  size_t chosen = sources_.size();
  Wide soonest = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Wide units = units_[i];
    const bool is_behind = phase_taken_[i] * Wide{whole_} < units * (phase_drawn_ + 1);
    if (units == 0 || !is_behind) {
      continue;
    }
    // Total number of samples by which the source must receive its next one.
    const Wide deadline = ((phase_taken_[i] + 1) * Wide{whole_} + units - 1) / units;
    if (chosen == sources_.size() || deadline < soonest) {
      chosen = i;
      soonest = deadline;
    }
  }
  const Sample sample{chosen, taken_[chosen]};
  ++taken_[chosen];
  ++phase_taken_[chosen];
  ++drawn_;
  ++phase_drawn_;
  if (is_used_up(chosen)) {
    begin_phase();
  }
  return sample;
}

std::optional<int64_t> MixtureOrder::capacity() const {
  int64_t sum = 0;
  for (const MixtureSource& source : sources_) {
    if (!source.max_epochs) {
      return std::nullopt;
    }
    sum += source.sequences * *source.max_epochs;
  }
  return sum;
}

void MixtureOrder::advance_to(int64_t position) {
  while (drawn_ < position) {
    next();
  }
}

}  // namespace lockstep::data
