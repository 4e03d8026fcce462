#include "data/row_lengths.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::data {
namespace {

constexpr int64_t kMostSeen = 4096;

/// The longest of `rows` draws, on average.
double expected_longest(std::vector<int64_t> lengths, int64_t rows) {
  std::sort(lengths.begin(), lengths.end());
  const auto count = static_cast<double>(lengths.size());
  double mean = 0;
  double below = 0;  // the chance that all draws are shorter
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double up_to = std::pow(
        static_cast<double>(i + 1) / count, static_cast<double>(std::max<int64_t>(rows, 1)));
    mean += (up_to - below) * static_cast<double>(lengths[i]);
    below = up_to;
  }
  return mean;
}

}  // namespace

int64_t padded_length(int64_t longest, int64_t most) {
  constexpr int64_t kStep = 8;
  const int64_t rounded = (longest + kStep - 1) / kStep * kStep;
  return std::max(longest, std::min(rounded, most));
}

PaddedLengths padded_lengths(const SequenceView& view, int64_t rows) {
  std::vector<int64_t> tokens, source;
  const int64_t seen = std::min(view.rows(), kMostSeen);
  for (int64_t i = 0; i < seen; ++i) {
    const int64_t row = i * view.rows() / seen;
    tokens.push_back(padded_length(view.tokens(row), view.length()));
    source.push_back(padded_length(view.source_tokens(row), view.length()));
  }
  PaddedLengths lengths;
  if (seen > 0) {
    lengths.expected = {expected_longest(tokens, rows), expected_longest(source, rows)};
    lengths.longest = {
        static_cast<double>(*std::max_element(tokens.begin(), tokens.end())),
        static_cast<double>(*std::max_element(source.begin(), source.end()))};
  }
  return lengths;
}

}  // namespace lockstep::data
