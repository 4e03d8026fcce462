// Interleaves data sources fairly.
#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

/// Integer value of the largest weight. Products with the number of samples fit 128 bits.
constexpr double kUnits = double{1 << 30};

__extension__ using Wide = __int128;

Wide rounded_up(Wide value, Wide by) {
  return (value + by - 1) / by;
}

/// Sample of a source that may be drawn before or after a point of the order: its window, from the
/// first draw that does not exceed the source's share by a whole sample to its deadline, contains
/// the point.
struct OpenSample {
  int64_t deadline = 0;
  size_t source = 0;
  int64_t opens = 0;  // number of draws after which it may be drawn
  bool operator<(const OpenSample& other) const {
    return std::pair(deadline, source) < std::pair(other.deadline, other.source);
  }
};

/// Steps through the number of draws and returns by how much the draws fall short of the samples
/// that may have been drawn.
class Shortfall {
 public:
  Shortfall(const std::vector<int64_t>& units, int64_t whole, int64_t draws)
      : units_(units),
        whole_(whole),
        draws_(draws),
        rest_(units.size()) {
    for (size_t i = 0; i < units.size(); ++i) {
      open_ += static_cast<int64_t>(rounded_up(Wide{units[i]} * draws, whole));
      rest_[i] = static_cast<int64_t>(Wide{units[i]} * draws % whole);
    }
  }

  int64_t value() const { return open_ - draws_; }
  void step() {
    ++draws_;
    for (size_t i = 0; i < units_.size(); ++i) {
      open_ += (rest_[i] == 0 ? 1 : 0) + (rest_[i] + units_[i] > whole_ ? 1 : 0) -
               (units_[i] == 0 ? 1 : 0);
      rest_[i] = (rest_[i] + units_[i]) % whole_;
    }
  }

 private:
  const std::vector<int64_t>& units_;
  const int64_t whole_;
  int64_t draws_, open_ = 0;
  std::vector<int64_t> rest_;
};

/// Returns for each q how many of the samples from open[q] on are drawn in the first `draws` draws.
/// `open` is sorted. By draw s, shortfall(s) of the samples that may have been drawn are not drawn,
/// so of those from open[q] on, at least the number that has opened less the shortfall is drawn.
/// The best bound of all s is attained: other draws take a sample with an earlier deadline. Draws
/// before `begin`, when none is open, give the bound 0.
std::vector<int64_t> drawn_from(
    const std::vector<OpenSample>& open, Shortfall shortfall, int64_t begin, int64_t draws) {
  std::vector<int64_t> most(open.size() + 1, 0);
  for (int64_t s = begin; s <= draws; ++s, shortfall.step()) {
    int64_t value = -shortfall.value();
    for (size_t q = open.size(); q-- > 0;) {
      value += open[q].opens <= s ? 1 : 0;
      most[q] = std::max(most[q], value);
    }
  }
  return most;
}

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
    const Wide deadline = rounded_up((phase_taken_[i] + 1) * Wide{whole_}, units);
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

std::vector<int64_t> MixtureOrder::after(int64_t drawn) const {
  std::vector<int64_t> taken(units_.size());
  std::vector<OpenSample> open;
  int64_t begin = drawn;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Wide share = Wide{units_[i]} * drawn;
    taken[i] = static_cast<int64_t>(share / whole_);
    if (share % whole_ != 0) {  // the share is between two whole numbers, and so is a sample
      const auto opens = static_cast<int64_t>(taken[i] * Wide{whole_} / units_[i]) + 1;
      const Wide deadline = rounded_up((taken[i] + 1) * Wide{whole_}, units_[i]);
      open.push_back({static_cast<int64_t>(deadline), i, opens});
      begin = std::min(begin, opens);
    }
  }
  std::sort(open.begin(), open.end());
  const std::vector<int64_t> from =
      drawn_from(open, Shortfall(units_, whole_, begin), begin, drawn);
  for (size_t q = 0; q < open.size(); ++q) {
    taken[open[q].source] += from[q] - from[q + 1];
  }
  return taken;
}

int64_t MixtureOrder::longest_gap() const {
  int64_t least = whole_;
  for (const int64_t units : units_) {
    least = units > 0 ? std::min(least, units) : least;
  }
  return whole_ / least + 1;
}

int64_t MixtureOrder::left_of(size_t source) const {
  const MixtureSource& limits = sources_[source];
  return limits.sequences * *limits.max_epochs - (taken_[source] - phase_taken_[source]);
}

std::optional<int64_t> MixtureOrder::end_of_phase(int64_t most) const {
  // The last sample of a source is drawn within its window.
  int64_t first = std::numeric_limits<int64_t>::max(), last = first;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i] > 0 && sources_[i].max_epochs) {
      const Wide end = left_of(i) * Wide{whole_};
      first = static_cast<int64_t>(std::min<Wide>(first, (end - whole_) / units_[i] + 1));
      last = static_cast<int64_t>(std::min<Wide>(last, rounded_up(end, units_[i])));
    }
  }
  const auto ends_by = [&](int64_t drawn) {
    const std::vector<int64_t> taken = after(drawn);
    for (size_t i = 0; i < units_.size(); ++i) {
      if (units_[i] > 0 && sources_[i].max_epochs && taken[i] >= left_of(i)) {
        return true;
      }
    }
    return false;
  };
  if (first > most || (last > most && !ends_by(most))) {
    return std::nullopt;
  }
  last = std::min(last, most);
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (ends_by(middle)) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return last;
}

void MixtureOrder::skip(int64_t samples) {
  const std::vector<int64_t> taken = after(phase_drawn_ + samples);
  for (size_t i = 0; i < taken.size(); ++i) {
    taken_[i] += taken[i] - phase_taken_[i];
  }
  phase_taken_ = taken;
  phase_drawn_ += samples;
  drawn_ += samples;
}

void MixtureOrder::advance_to(int64_t position) {
  while (drawn_ < position) {
    const int64_t wanted = position - drawn_;
    if (whole_ == 0 || wanted <= longest_gap()) {
      next();
      continue;
    }
    const std::optional<int64_t> end = end_of_phase(phase_drawn_ + wanted);
    skip(end ? *end - phase_drawn_ : wanted);
    if (end) {
      begin_phase();
    }
  }
}

}  // namespace lockstep::data
