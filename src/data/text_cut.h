// Positions at which long text can be cut without changing its tokens.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::data {

/// True if `text` consists of ASCII white space.
bool is_blank(std::string_view text);

/// Returns a cut in the second half of `text` (valid UTF-8 or not, at least 2 bytes): the last
/// position before a space and a non-space character. There every GPT-2-like splitting pattern
/// begins a new piece or puts the space in a piece of its own, whatever precedes it, so byte-level
/// BPE gives the same ids for the parts. Without such a position, after a lone newline; otherwise
/// between two code points, where the ids at the cut may differ.
size_t find_cut(std::string_view text);

}  // namespace lockstep::data
