// Splitting of text at the matches of a pattern, with Hugging Face's five behaviors.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/fields.h"

namespace lockstep::text {

/// Span of text: a match, or the text between two matches.
struct Match {
  size_t begin, end;
  bool is_match;
};

/// Splits non-empty text into matches and the text between them, in order and without gaps. Only
/// matches may be empty.
using Matcher = std::function<std::vector<Match>(std::string_view)>;

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior read_split_behavior(const Field& field);

/// Applies a behavior and returns the resulting spans. A span may be empty if a match was removed.
std::vector<Match> apply_behavior(std::vector<Match> matches, SplitBehavior behavior);

/// Returns a matcher for a fixed string. Matches from left to right without overlap. An empty
/// string never matches.
Matcher make_string_matcher(std::string pattern);
/// Returns a matcher for a "pattern" object: {"String": s} or {"Regex": r}.
Matcher make_matcher(const Field& pattern);

}  // namespace lockstep::text
