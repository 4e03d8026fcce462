// Template of the ids that a tokenizer adds around text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::text {

/// Ids around one or two texts of a row: [CLS] a [SEP], and [CLS] a [SEP] b [SEP].
struct RowTemplate {
  std::vector<int32_t> before = {}, after = {};                          // for one text
  std::vector<int32_t> pair_before = {}, between = {}, pair_after = {};  // for a pair
  int64_t between_of_first = 0;  // number of ids in `between` in the first segment
  bool tells_segments = false;   // second text has segment id 1

  /// Returns the highest id, or -1 if the template is empty.
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
