// Origin of a value.
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
  /// Counts up as values are read: of two, the later has the larger.
  int64_t order = 0;
  /// The value holds a secret (it came through an environment variable such as HF_TOKEN): never
  /// shown.
  bool secret = false;
};

using Origins = std::map<std::string, Origin>;

/// "default", "conf/a.yaml:3", "command line: seed=1", "environment: WORLD_SIZE", "from
/// training.bf16".
std::string describe(const Origin& origin);
/// Whether a name is that of a secret: it ends in KEY, TOKEN, SECRET or PASSWORD, as a word of its
/// own.
bool is_secret_name(const std::string& name);

}  // namespace lockstep::config
