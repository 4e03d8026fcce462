// Draws that combine rows of several sets: forget set, alternate answers, and retain set.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sampler.h"

namespace lockstep::data {

/// Rows of a token file in this order: the forget set; alternate answers for each of its rows (the
/// first alternates of all rows, then the second ones, ...); the retain set. The sampler draws rows
/// of the leading set. The row of the other set is drawn per sample, uniformly with replacement. It
/// depends only on (seed, sample), so it is the same on any number of ranks and after a resume.
struct PartnerRows {
  int64_t forget = 0;      // 0: no forget set
  int64_t alternates = 0;  // alternate answers per row of the forget set; epochs use them in turn
  int64_t retain = 0;      // 0: no retain set
  bool retain_leads = false;  // if false, the forget set leads
  uint64_t seed = 0;

  /// Number of rows of the leading set.
  int64_t size() const { return retain_leads ? retain : forget; }
  /// Rows per draw, in this order: forget, its alternate, retain.
  int64_t rows_at_once() const {
    return (forget > 0 ? 1 : 0) + (alternates > 0 ? 1 : 0) + (retain > 0 ? 1 : 0);
  }
  /// Number of rows in the file.
  int64_t rows() const { return forget * (1 + alternates) + retain; }
  /// Returns the rows_at_once() rows of a draw.
  std::vector<int64_t> rows_of(const Draw& draw) const;
};

}  // namespace lockstep::data
