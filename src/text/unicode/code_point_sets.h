// Sets of code points by property, as regular expressions name them: general categories, some
// scripts, \w.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

/// First and last code points of runs, rising, not touching. No surrogates.
using CodePointRanges = std::vector<std::pair<char32_t, char32_t>>;

/// The set of a property's name ("L", "Lu", "Letter", "Han", "Word", "Alphabetic"), of Unicode 16;
/// nothing where it is not known.
std::optional<CodePointRanges> property_ranges(std::string_view name);
/// What of `from` is not in `ranges`.
CodePointRanges subtract(const CodePointRanges& from, const CodePointRanges& ranges);
/// All code points but surrogates that are not in `ranges`.
CodePointRanges complement(const CodePointRanges& ranges);

}  // namespace lockstep::text
