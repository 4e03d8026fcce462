// Draws that combine rows of several sets: forget set, alternate answers and retain set.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sampler.h"

namespace lockstep::data {

/// Order of the rows of a token file: first the forget set; then the alternate answers for each of
/// its rows (the first alternate of every row, then the second one of every row, ...); then the
/// retain set. The sampler draws rows of the leading set. For each sample, a row of the other set
/// is drawn uniformly with replacement. This row depends only on (seed, sample), so it is the same
/// for any number of ranks and after a resume.
struct PartnerRows {
  int64_t forget = 0;         // 0: no forget set
  int64_t alternates = 0;     // alternate answers per forget row; each epoch uses the next one
  int64_t retain = 0;         // 0: no retain set
  bool retain_leads = false;  // if false, the forget set leads
  uint64_t seed = 0;

  /// Returns the number of rows in the leading set.
  int64_t size() const { return retain_leads ? retain : forget; }
  /// Returns the number of rows per draw. They are in this order: forget, its alternate, retain.
  int64_t rows_at_once() const {
    return (forget > 0 ? 1 : 0) + (alternates > 0 ? 1 : 0) + (retain > 0 ? 1 : 0);
  }
  /// Returns the number of rows in the file.
  int64_t rows() const { return forget * (1 + alternates) + retain; }
  /// Returns the rows_at_once() rows of a draw.
  std::vector<int64_t> rows_of(const Draw& draw) const;
};

}  // namespace lockstep::data
