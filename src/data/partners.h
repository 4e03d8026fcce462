// Draws that combine rows of several sets: forget set, alternate answers, and retain set.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sampler.h"

namespace lockstep::data {

/// The rows of a token file in this order: the forget set; then alternates for each of its rows
/// (the first alternates of all rows, then the second ones, ...); then the retain set. One set
/// leads: its rows are drawn by the sampler. The other set's row is drawn per sample, uniformly
/// with replacement, by (seed, sample) alone: the same on any number of ranks and after a resume.
struct PartnerRows {
  int64_t forget = 0;         // 0: no forget set
  int64_t alternates = 0;     // per row of the forget set: an epoch uses one of them, in turn
  int64_t retain = 0;         // 0: no retain set
  bool retain_leads = false;  // else the rows to be forgotten do
  uint64_t seed = 0;

  /// Number of rows of the leading set.
  int64_t size() const { return retain_leads ? retain : forget; }
  /// Rows per draw, in this order: forget, its alternate, retain.
  int64_t rows_at_once() const {
    return (forget > 0 ? 1 : 0) + (alternates > 0 ? 1 : 0) + (retain > 0 ? 1 : 0);
  }
  /// All rows of the file.
  int64_t rows() const { return forget * (1 + alternates) + retain; }
  /// The rows of `draw`, rows_at_once() of them.
  std::vector<int64_t> rows_of(const Draw& draw) const;
};

}  // namespace lockstep::data
