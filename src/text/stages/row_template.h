// What a tokenizer's template puts around texts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::text {

/// What the template puts around the texts of a row: [CLS] a [SEP], and [CLS] a [SEP] b [SEP].
struct RowTemplate {
  std::vector<int32_t> before = {}, after = {};                          // of one text
  std::vector<int32_t> pair_before = {}, between = {}, pair_after = {};  // of two
  int64_t between_of_first = 0;  // of `between`, those of the first segment
  bool tells_segments = false;   // the second text is a segment of its own

  /// -1 where it puts nothing around texts.
  int32_t highest_id() const {
    int32_t highest = -1;
    for (const auto* ids : {&before, &after, &pair_before, &between, &pair_after}) {
      for (const int32_t id : *ids) {
        highest = std::max(highest, id);
      }
    }
    return highest;
  }
};

}  // namespace lockstep::text
