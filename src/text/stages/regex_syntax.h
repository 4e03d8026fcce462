// Translation of regular expressions from Oniguruma (Ruby) syntax, used in tokenizer.json, to
// PCRE2. Character classes follow Unicode 16 regardless of the PCRE2 version.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

/// Returns the equivalent PCRE2 pattern. Throws Error with `place` for constructs that differ and
/// are not translated.
std::string to_pcre(std::string_view pattern, const std::string& place);

/// Returns the pattern, truncated for messages.
std::string shown_pattern(std::string_view pattern);

}  // namespace lockstep::text
