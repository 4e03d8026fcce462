// Implements regular expressions over parameter names.
#include "base/name_pattern.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {

std::regex parse_regex(const std::string& key, const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}: '{}' is not a regular expression: {}", key, text, error.what()),
        "escape special characters with a backslash: layers\\.0\\.");
  }
}

NamePattern::NamePattern(std::string key, std::string text)
    : key_(std::move(key)),
      text_(std::move(text)),
      expression_(parse_regex(key_, text_)) {}

void NamePattern::check_found_in(std::span<const std::string> names) const {
  if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_in(name); })) {
    return;
  }
  const size_t shown = std::min<size_t>(names.size(), 12);
  throw Error(
      ErrorKind::kConfig,
      fmt::format("{}: '{}' matches no parameter name", key_, text_),
      fmt::format(
          "use a pattern that matches a name, or remove it; the names are {}{}",
          fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          shown < names.size() ? ", ..." : ""));
}

}  // namespace lockstep
