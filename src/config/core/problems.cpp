// Collects configuration problems and throws them as one error.
#include "config/core/problems.h"

#include <algorithm>

#include "base/format.h"

namespace lockstep::config {

void Problems::add(
    const std::string& key,
    const Origin& origin,
    const std::string& message,
    const std::string& remedy) {
  std::string line;
  if (!key.empty()) {
    line = origin.source == Origin::Source::kDefault
               ? key + ": "
               : fmt::format("{} ({}): ", key, describe(origin));
  }
  line += message;
  if (!remedy.empty()) {
    if (line.ends_with('.')) {
      line.pop_back();
    }
    line += "; " + remedy;
  }
  if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) {
    lines_.push_back(std::move(line));
  }
}

void Problems::add(const Error& error) {
  add("", {}, error.message(), error.remedy());
}

void Problems::throw_if_any() const {
  constexpr size_t kShown = 20;
  if (lines_.empty()) {
    return;
  }
  if (lines_.size() == 1) {
    throw Error(ErrorKind::kConfig, lines_[0]);
  }
  std::string text = fmt::format("the configuration has {} problems:", lines_.size());
  for (size_t i = 0; i < std::min(lines_.size(), kShown); ++i) {
    text += fmt::format("\n  {}. {}", i + 1, lines_[i]);
  }
  if (lines_.size() > kShown) {
    text += fmt::format("\n  and {} more", lines_.size() - kShown);
  }
  throw Error(ErrorKind::kConfig, text);
}

}  // namespace lockstep::config
