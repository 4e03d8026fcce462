// Sets of code points by property name in regular expressions: general categories, some scripts,
// \w.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

/// Inclusive ranges (first, last), sorted and non-adjacent, without surrogates.
using CodePointRanges = std::vector<std::pair<char32_t, char32_t>>;

/// Returns the code points with a Unicode 16 property ("L", "Lu", "Letter", "Han", "Word",
/// "Alphabetic"), or nullopt if the name is unknown.
std::optional<CodePointRanges> property_ranges(std::string_view name);
/// Returns the code points of `from` that are not in `ranges`.
CodePointRanges subtract(const CodePointRanges& from, const CodePointRanges& ranges);
/// Returns all code points that are not in `ranges`, except surrogates.
CodePointRanges complement(const CodePointRanges& ranges);

}  // namespace lockstep::text
