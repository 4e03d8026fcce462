// "Did you mean": the nearest of a list of names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) to `word`,
/// where that is at most a third of the longer of the two; one that begins or ends with `word` and
/// an underscore goes before those of more than two edits. Nothing where none is so near.
std::optional<std::string> nearest_name(
    std::string_view word, std::span<const std::string> candidates);
/// " Did you mean 'x'?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace lockstep
