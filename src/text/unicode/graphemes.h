// Extended grapheme clusters (UAX 29): user-perceived characters.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::text {

/// Returns the end of the cluster that starts at `at`. Requires valid UTF-8 and `at` < text.size()
/// at a cluster boundary.
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace lockstep::text
