// Extended grapheme clusters (UAX 29), the characters that a reader perceives.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::text {

/// Returns the end of the cluster that starts at `at`, which must be a cluster boundary in valid
/// UTF-8 below text.size().
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace lockstep::text
