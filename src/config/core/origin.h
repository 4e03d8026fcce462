// Origin of a configuration value.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::config {

struct Origin {
  enum class Source { kDefault, kFile, kCommandLine, kEnvironment, kDerived };
  Source source = Source::kDefault;
  /// "conf/model/small.yaml:3", "seed=1" of the command line, "WORLD_SIZE",
  /// "training.gradient_checkpointing".
  std::string place = {};
  /// Increases as values are read: the later of two values has the larger order.
  int64_t order = 0;
  /// The value contains a secret, from an environment variable such as HF_TOKEN, and is never
  /// printed.
  bool secret = false;
};

using Origins = std::map<std::string, Origin>;

/// "default", "conf/a.yaml:3", "command line: seed=1", "environment: WORLD_SIZE", "from
/// training.bf16". Credentials in URLs are replaced.
std::string describe(const Origin& origin);

}  // namespace lockstep::config
