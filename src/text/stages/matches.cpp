// Implements split behaviors (Removed, Isolated, ...) and matchers for strings and regular
// expressions.
#include "text/stages/matches.h"

#include <algorithm>

#include "text/stages/regex.h"
#include "text/stages/split_patterns.h"

namespace lockstep::text {
namespace {

/// Joins each match with the preceding element in iteration order. `join(kept, match)` extends that
/// element.
template <class Iterator, class Join>
std::vector<Match> merge_matches(Iterator begin, Iterator end, Join&& join) {
  std::vector<Match> kept;
  bool previous = false;
  for (Iterator match = begin; match != end; ++match) {
    if (match->is_match && !previous && !kept.empty()) {
      join(kept.back(), *match);
    } else {
      kept.push_back(*match);
    }
    previous = match->is_match;
  }
  return kept;
}

std::vector<Match> join_equals(const std::vector<Match>& matches) {
  std::vector<Match> kept;
  bool previous = false;
  for (const Match& match : matches) {
    if (match.is_match == previous && !kept.empty()) {
      kept.back().end = match.end;
    } else {
      kept.push_back(match);
    }
    previous = match.is_match;
  }
  return kept;
}

}  // namespace

SplitBehavior read_split_behavior(const Field& field) {
  const std::string name = field.string();
  if (name == "Removed") {
    return SplitBehavior::kRemoved;
  }
  if (name == "Isolated") {
    return SplitBehavior::kIsolated;
  }
  if (name == "MergedWithPrevious") {
    return SplitBehavior::kMergedWithPrevious;
  }
  if (name == "MergedWithNext") {
    return SplitBehavior::kMergedWithNext;
  }
  if (name == "Contiguous") {
    return SplitBehavior::kContiguous;
  }
  throw field.error(
      "should be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, but is \"" +
      name + "\"");
}

std::vector<Match> apply_behavior(std::vector<Match> matches, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return matches;
    case SplitBehavior::kRemoved:
      std::erase_if(matches, [](const Match& match) { return match.is_match; });
      return matches;
    case SplitBehavior::kContiguous:
      return join_equals(matches);
    case SplitBehavior::kMergedWithPrevious:
      return merge_matches(matches.begin(), matches.end(), [](Match& kept, const Match& match) {
        kept.end = match.end;
      });
    case SplitBehavior::kMergedWithNext: {
      std::vector<Match> kept =
          merge_matches(matches.rbegin(), matches.rend(), [](Match& next, const Match& match) {
            next.begin = match.begin;
          });
      std::reverse(kept.begin(), kept.end());
      return kept;
    }
  }
  return matches;
}

Matcher make_string_matcher(std::string pattern) {
  return [pattern = std::move(pattern)](std::string_view text) {
    std::vector<Match> matches;
    size_t done = 0;
    if (!pattern.empty()) {
      for (size_t found = text.find(pattern); found != std::string_view::npos;
           found = text.find(pattern, done)) {
        if (found > done) {
          matches.push_back({done, found, false});
        }
        done = found + pattern.size();
        matches.push_back({found, done, true});
      }
    }
    if (done < text.size()) {
      matches.push_back({done, text.size(), false});
    }
    return matches;
  };
}

Matcher make_matcher(const Field& pattern) {
  if (const std::optional<Field> literal = pattern.find("String")) {
    return make_string_matcher(literal->string());
  }
  const Field expression = pattern.at("Regex");
  if (const std::optional<SplitPattern> known = known_pattern(expression.string())) {
    return [known = *known](std::string_view text) {
      std::vector<Match> matches;
      split_by(known, text, [&](std::string_view piece) {
        const auto begin = static_cast<size_t>(piece.data() - text.data());
        matches.push_back({begin, begin + piece.size(), true});
      });
      return matches;
    };
  }
  const auto regex = std::make_shared<Regex>(expression.string(), expression.place());
  return [regex](std::string_view text) { return regex->matches(text); };
}

}  // namespace lockstep::text
