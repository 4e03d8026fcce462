// Extended grapheme clusters (UAX 29): what a reader takes for one character.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::text {

/// The end of the cluster that begins at `at`, a boundary of clusters in valid UTF-8; at <
/// text.size().
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace lockstep::text
