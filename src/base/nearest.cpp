// Finds the nearest name for "Did you mean" messages.
#include "base/nearest.h"

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "base/text.h"

namespace lockstep {
namespace {

bool is_same(char a, char b) {
  return lower_case(a) == lower_case(b);
}

/// Returns the optimal string alignment distance, ignoring case.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min(
          {last[j] + 1, now[j - 1] + 1, last[j - 1] + (is_same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1])) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(
    std::string_view word, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  size_t fewest = 0;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t shorter = std::min(word.size(), candidate.size());
    const auto is_nearer = [&](size_t count) {
      return 3 * count <= longer && (!best || count < fewest);
    };
    if (!is_nearer(longer - shorter)) {  // lower bound of the edits
      continue;
    }
    if (const size_t count = edits(word, candidate); is_nearer(count)) {
      best = candidate;
      fewest = count;
    }
  }
  if (!best || fewest > 2) {  // prefix or suffix of a longer name
    for (const std::string& candidate : candidates) {
      if (word.size() > 4 && (candidate.starts_with(std::string(word) + "_") ||
                              candidate.ends_with("_" + std::string(word)))) {
        return candidate;
      }
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto nearest = nearest_name(word, candidates);
  return nearest ? fmt::format(" Did you mean '{}'?", *nearest) : "";
}

}  // namespace lockstep
