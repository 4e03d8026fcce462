// Splits documents into train, validation and test.
#include "data/split.h"

#include <algorithm>
#include <cmath>

#include "base/counter_random.h"

namespace lockstep::data {

StratifiedChoice::StratifiedChoice(double fraction, uint64_t key)
    : fraction_(fraction),
      key_(key) {}

void StratifiedChoice::start_run() {
  constexpr double kSlack = 1e-9;  // tolerance for bounds that are integers up to rounding
  const int64_t begin = run_end_;
  const auto end =
      static_cast<int64_t>(std::ceil(static_cast<double>(run_ + 1) / fraction_ - kSlack));
  run_end_ = std::max(begin + 1, end);
  const uint64_t bits = random_bits(key_, static_cast<uint64_t>(run_));
  chosen_ = begin + static_cast<int64_t>(bits % static_cast<uint64_t>(run_end_ - begin));
  ++run_;
}

bool StratifiedChoice::next() {
  if (!(fraction_ > 0)) {
    return false;
  }
  if (at_ == run_end_) {
    start_run();
  }
  return at_++ == chosen_;
}

Splitter::Splitter(double validation_fraction, double test_fraction, uint64_t seed)
    : validation_(validation_fraction, derive_key(seed, 1)),
      // Relative to the documents that are not in the validation split.
      test_(std::min(1.0, test_fraction / (1 - validation_fraction)), derive_key(seed, 2)) {}

Split Splitter::next() {
  if (validation_.next()) {
    return Split::kValidation;
  }
  return test_.next() ? Split::kTest : Split::kTrain;
}

}  // namespace lockstep::data
