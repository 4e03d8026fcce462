// Where long text may be cut so that its parts have the tokens of the whole.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::data {

/// Whether `text` is of white space alone (ASCII's).
bool is_blank(std::string_view text);

/// A cut in the second half of `text` (valid UTF-8 or not, at least 2 bytes): the last place before
/// a space and a character that is not white space. There every splitting pattern of the GPT-2 kind
/// begins a new piece, or puts the space in one of its own, whatever stands before; so byte-level
/// BPE gives the same ids for the parts. Without such a place, after a lone newline; without that,
/// between two code points, where the ids at the cut may differ.
size_t find_cut(std::string_view text);

}  // namespace lockstep::data
