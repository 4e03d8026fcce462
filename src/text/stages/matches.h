// Splitting text by what a pattern matches, with Hugging Face's five ways to treat the matches.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/fields.h"

namespace lockstep::text {

/// A stretch of text that a pattern matches, or one between two matches.
struct Match {
  size_t begin, end;
  bool is_match;
};

/// Cuts a text into matches and what is between them: in order, without holes, none empty except
/// that a pattern may match nothing. The text is not empty.
using Matcher = std::function<std::vector<Match>(std::string_view)>;

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior read_split_behavior(const Field& field);

/// The stretches that remain, which may be empty where a match was.
std::vector<Match> apply_behavior(std::vector<Match> matches, SplitBehavior behavior);

/// A matcher of a fixed string, left to right without overlap; an empty one matches nothing.
Matcher make_string_matcher(std::string pattern);
/// A matcher of a "pattern" object: {"String": s} or {"Regex": r}.
Matcher make_matcher(const Field& pattern);

}  // namespace lockstep::text
