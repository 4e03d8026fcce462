// Patterns in Oniguruma's syntax (Ruby's), which tokenizer.json files hold, as PCRE2 reads them,
// with the character classes of Unicode 16 whatever the version of PCRE2's own.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

/// The same pattern for PCRE2. What the two read differently and we do not translate is an Error
/// that names `place`, never another meaning.
std::string to_pcre(std::string_view pattern, const std::string& place);

/// Its first characters, as messages show it.
std::string shown_pattern(std::string_view pattern);

}  // namespace lockstep::text
