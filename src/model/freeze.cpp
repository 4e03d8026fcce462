#include "model/freeze.h"

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::model {
namespace {

std::regex parse_pattern(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("model.freeze: '{}' is not a regular expression: {}", pattern, error.what()),
        "put a backslash before a character that stands for itself: layers\\.0\\.");
  }
}

}  // namespace

std::set<std::string> frozen_parameters(
    const std::vector<std::string>& names, std::span<const std::string> patterns) {
  std::set<std::string> frozen;
  for (const std::string& pattern : patterns) {
    const std::regex expression = parse_pattern(pattern);
    bool is_found = false;
    for (const std::string& name : names) {
      if (std::regex_search(name, expression)) {
        frozen.insert(name);
        is_found = true;
      }
    }
    if (!is_found) {
      const size_t shown = std::min<size_t>(names.size(), 12);
      throw Error(
          ErrorKind::kConfig,
          fmt::format("model.freeze: '{}' is found in no parameter's name", pattern),
          fmt::format(
              "write one that is found in a name, or leave it out; the names are {}{}",
              fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
              shown < names.size() ? ", ..." : ""));
    }
  }
  if (!names.empty() && frozen.size() == names.size()) {
    throw Error(
        ErrorKind::kConfig, "model.freeze leaves no parameter to train", "name fewer of them");
  }
  return frozen;
}

}  // namespace lockstep::model
