// What a tokenizer's template puts around texts.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::text {

/// What the template puts around the texts of a row: [CLS] a [SEP], and [CLS] a [SEP] b [SEP].
struct RowTemplate {
  std::vector<int32_t> before = {}, after = {};                          // of one text
  std::vector<int32_t> pair_before = {}, between = {}, pair_after = {};  // of two
  int64_t between_of_first = 0;  // of `between`, those of the first segment
  bool tells_segments = false;   // the second text is a segment of its own
};

}  // namespace lockstep::text
