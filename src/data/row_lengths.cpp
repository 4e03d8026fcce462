// Estimates the lengths of padded rows.
#include "data/row_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "data/packed_rows.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMostSeen = 4096;

/// Returns the expected maximum of `rows` random lengths.
double expected_longest(std::vector<int64_t> lengths, int64_t rows) {
  std::sort(lengths.begin(), lengths.end());
  const auto count = static_cast<double>(lengths.size());
  double mean = 0;
  double below = 0;  // probability that all lengths are shorter
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double up_to = std::pow(
        static_cast<double>(i + 1) / count, static_cast<double>(std::max<int64_t>(rows, 1)));
    mean += (up_to - below) * static_cast<double>(lengths[i]);
    below = up_to;
  }
  return mean;
}

/// Returns the lengths of evenly spaced rows of the view, at most `most`.
std::vector<int64_t> tokens_seen(const SequenceView& view, int64_t most) {
  std::vector<int64_t> tokens;
  const int64_t seen = std::min(view.rows(), most);
  for (int64_t i = 0; i < seen; ++i) {
    tokens.push_back(view.tokens(i * view.rows() / seen));
  }
  return tokens;
}

/// Average size of a micro-batch, estimated from a sample.
struct Filled {
  double rows = 0, tokens = 0, with_padding = 0;
};

Filled packed_tokens(const SequenceView& view, int64_t rows) {
  constexpr int64_t kBatches = 64;
  const auto count = static_cast<size_t>(std::max<int64_t>(rows, 1));
  const std::vector<int64_t> tokens =
      tokens_seen(view, std::min(kMostSeen, kBatches * static_cast<int64_t>(count)));
  Filled filled{.rows = static_cast<double>(tokens.size())};
  for (size_t begin = 0; begin < tokens.size(); begin += count) {
    const auto some = std::span(tokens).subspan(begin, std::min(count, tokens.size() - begin));
    const PackedRows packed = pack_rows(some, view.length());
    filled.tokens += std::accumulate(some.begin(), some.end(), 0.0);
    filled.with_padding += static_cast<double>(packed.rows * packed.length);
  }
  return filled;
}

}  // namespace

double padding_of(const SequenceView& view, int64_t rows) {
  if (view.is_packed()) {
    const Filled filled = packed_tokens(view, rows);
    return filled.rows > 0 ? 1 - filled.tokens / filled.with_padding : 0;
  }
  const std::vector<int64_t> tokens = tokens_seen(view, kMostSeen);
  const double filled = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  const double expected = padded_lengths(view, rows).expected.tokens;
  return tokens.empty() ? 0 : 1 - filled / (expected * static_cast<double>(tokens.size()));
}

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
    if (view.is_packed()) {
      const Filled filled = packed_tokens(view, rows);
      lengths.expected.tokens = filled.with_padding / filled.rows;
    }
    lengths.longest = {
        static_cast<double>(*std::max_element(tokens.begin(), tokens.end())),
        static_cast<double>(*std::max_element(source.begin(), source.end()))};
  }
  return lengths;
}

}  // namespace lockstep::data
