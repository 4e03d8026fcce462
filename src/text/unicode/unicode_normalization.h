// Unicode's normalization forms (UAX 15) and lower case, as Hugging Face's tokenizers have them:
// the forms of the Unicode version that its library is built with. The tables come from
// tools/generate_unicode_tables.py.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

/// Valid UTF-8 in, valid UTF-8 out; linear but for runs of combining marks, which are sorted.
std::string normalize(std::string_view text, NormalizationForm form);

/// Code point by code point: no context, no locale.
std::string to_lower_case(std::string_view text);

}  // namespace lockstep::text
