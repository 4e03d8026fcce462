// Origin of a configuration value.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::config {

struct Origin {
  enum class Source { kDefault, kFile, kCommandLine, kEnvironment, kDerived };
  Source source = Source::kDefault;
  /// Examples: "conf/model/small.yaml:3", "seed=1" (command line), "WORLD_SIZE",
  /// "training.gradient_checkpointing".
  std::string place = {};
  /// Position in reading order. The later of two values has the larger order.
  int64_t order = 0;
  /// True for secrets, for example from HF_TOKEN in the environment. Secret values are never
  /// printed.
  bool secret = false;
};

using Origins = std::map<std::string, Origin>;

/// Formats an origin for messages: "default", "conf/a.yaml:3", "command line: seed=1",
/// "environment: WORLD_SIZE", "from training.bf16".
std::string describe(const Origin& origin);

}  // namespace lockstep::config
