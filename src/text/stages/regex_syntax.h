// Translation of regular expressions from Oniguruma's (Ruby's) syntax, used in tokenizer.json, to
// PCRE2. Character classes follow Unicode 16 regardless of the PCRE2 version.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

/// Returns the equivalent PCRE2 pattern. Throws Error that names `place` for constructs that differ
/// between the two and are not translated.
std::string to_pcre(std::string_view pattern, const std::string& place);

/// Returns the start of the pattern, shortened for messages.
std::string shown_pattern(std::string_view pattern);

}  // namespace lockstep::text
