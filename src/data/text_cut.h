// Positions at which long text can be cut without changing its tokens.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::data {

/// True if `text` consists of ASCII white space.
bool is_blank(std::string_view text);

/// Returns a cut position in the second half of `text` (valid UTF-8 or not, at least 2 bytes). It
/// is the last position before a space that is followed by a non-space character. At such a
/// position all GPT-2-like split patterns start a new piece or make the space a separate piece,
/// regardless of the text before it, so byte-level BPE gives the same ids for the parts. Without
/// such a position, cuts after a single newline; otherwise between two code points, where the ids
/// at the cut may differ.
size_t find_cut(std::string_view text);

}  // namespace lockstep::data
