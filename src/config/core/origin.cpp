// Formats the origin of a configuration value.
#include "config/core/origin.h"

#include "base/redact.h"

namespace lockstep::config {

std::string describe(const Origin& origin) {
  switch (origin.source) {
    case Origin::Source::kDefault:
      return "default";
    case Origin::Source::kFile:
      return origin.place;
    case Origin::Source::kCommandLine:
      return redacted("command line: " + origin.place, {});
    case Origin::Source::kEnvironment:
      return "environment: " + origin.place;
    case Origin::Source::kDerived:
      return "from " + origin.place;
  }
  return "";
}

}  // namespace lockstep::config
