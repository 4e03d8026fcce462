// Search for the nearest name, for "Did you mean" messages.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns the candidate with the fewest edits (insert, delete, replace, swap of neighbors) to
/// `word`. The edits must be at most a third of the longer length. A candidate that starts or ends
/// with `word` and an underscore is preferred to candidates with more than two edits. Returns
/// nullopt if no candidate is near.
std::optional<std::string> nearest_name(
    std::string_view word, std::span<const std::string> candidates);
/// Returns " Did you mean 'x'?", or an empty string if no candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace lockstep
