// Positions at which long text can be cut without changing its tokens.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::data {

/// Returns true if `text` contains only ASCII white space.
bool is_blank(std::string_view text);

/// Returns a cut position in the second half of `text`, which may be invalid UTF-8 and must have at
/// least 2 bytes. The position is the last one before a space that is followed by a non-space
/// character. There, all split patterns like GPT-2's start a new piece or make the space a separate
/// piece, regardless of the text before. Byte-level BPE therefore gives the same ids for both parts
/// as for the whole text. If there is no such position, cuts after a single newline; otherwise
/// between two code points, where the ids at the cut may differ.
size_t find_cut(std::string_view text);

}  // namespace lockstep::data
