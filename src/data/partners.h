// Rows of several sets that one draw takes together: what is to be forgotten, other answers to the
// same questions, and what is to be kept.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sampler.h"

namespace lockstep::data {

/// The rows of a token file in parts: first those to be forgotten; then, for each of them, so many
/// alternates, the first one of every row before the second ones; then those to be kept. One set
/// leads: its rows are what the sampler draws. The other's row is drawn for each sample, uniformly
/// and with replacement, by (seed, sample) alone: the same on any number of ranks, and after a
/// resume.
struct PartnerRows {
  int64_t forget = 0;         // 0: nothing is
  int64_t alternates = 0;     // of each row to be forgotten: an epoch takes one of them, in turn
  int64_t retain = 0;         // 0: none is drawn
  bool retain_leads = false;  // else the rows to be forgotten do
  uint64_t seed = 0;

  /// What the sampler draws from.
  int64_t size() const { return retain_leads ? retain : forget; }
  /// Rows of a draw, in this order: to be forgotten, its alternate, to be kept.
  int64_t rows_at_once() const {
    return (forget > 0 ? 1 : 0) + (alternates > 0 ? 1 : 0) + (retain > 0 ? 1 : 0);
  }
  /// All rows of the file.
  int64_t rows() const { return forget * (1 + alternates) + retain; }
  /// The rows that `draw` takes, rows_at_once() of them.
  std::vector<int64_t> rows_of(const Draw& draw) const;
};

}  // namespace lockstep::data
