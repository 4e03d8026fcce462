// Formats the origin of a configuration value.
#include "config/core/origin.h"

#include "base/format.h"
#include "config/core/scalar.h"

namespace lockstep::config {

std::string describe(const Origin& origin) {
  switch (origin.source) {
    case Origin::Source::kDefault:
      return "default";
    case Origin::Source::kFile:
      return origin.place;
    case Origin::Source::kCommandLine:
      return "command line: " + origin.place;
    case Origin::Source::kEnvironment:
      return "environment: " + origin.place;
    case Origin::Source::kDerived:
      return "from " + origin.place;
  }
  return "";
}

bool is_secret_name(const std::string& name) {
  const std::string lower = lower_case(name);
  for (const std::string word : {"key", "token", "secret", "password"}) {
    if (lower.ends_with(word) &&
        (lower.size() == word.size() || lower[lower.size() - word.size() - 1] == '_' ||
         lower[lower.size() - word.size() - 1] == '-' ||
         lower[lower.size() - word.size() - 1] == '.')) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::config
