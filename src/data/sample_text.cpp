// Composes English phrases for the sample corpus.
#include "data/sample_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {

std::string fill(std::string_view pattern, Gaps gaps) {
  std::string text;
  while (true) {
    const size_t open = pattern.find('{');
    text += pattern.substr(0, open);
    if (open == std::string_view::npos) {
      return text;
    }
    const size_t close = pattern.find('}', open);
    const std::string_view key = pattern.substr(open + 1, close - open - 1);
    const auto* const gap = std::find_if(
        gaps.begin(), gaps.end(), [&](const auto& entry) { return entry.first == key; });
    if (gap == gaps.end()) {
      throw Error(ErrorKind::kInternal, fmt::format("nothing fills {{{}}}", key));
    }
    text += gap->second;
    pattern.remove_prefix(close + 1);
  }
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return items.empty() ? "nothing" : text;
}

std::string with_article(const std::string& noun) {
  const bool vowel = std::string_view("aeiou").find(noun.front()) != std::string_view::npos ||
                     noun.starts_with("honest");
  return (vowel ? "an " : "a ") + noun;
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

}  // namespace lockstep::data
