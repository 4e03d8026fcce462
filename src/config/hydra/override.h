// One override of the command line in Hydra's grammar (hydra-core 1.3, OverrideLexer.g4 and
// OverrideParser.g4).
//
//   override := key '=' value? | '+' key '=' value? | '++' key '=' value? | '~' key ('=' value?)?
//   key      := package-or-group ('@' package)?
//   value    := element | element (',' element)+            the second is a sweep
//   element  := primitive | '[' list ']' | '{' dict '}' | function '(' arguments ')'
//
// Beyond Hydra: letters outside ASCII need no quotes, interpolations may nest, and an index may be
// written a[0].
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/core/value.h"

namespace lockstep::config {

struct Override {
  enum class Kind {
    kChange,    // key=value: the key must exist
    kAdd,       // +key=value: the key must not exist
    kForceAdd,  // ++key=value: either
    kDelete,    // ~key or ~key=value
  };
  Kind kind = Kind::kChange;
  /// "training.seed", or a config group "model" or "hydra/launcher".
  std::string key;
  /// Text after '@': the target package of a group. May be empty ("model@=x").
  std::optional<std::string> package;
  /// Value; nullopt for ~key. "key=" is the empty string.
  std::optional<Value> value;
  /// Override as typed.
  std::string text;
  /// Given as a flag, --key value; never selects an option of a config group.
  bool is_flag = false;
};

/// Returns true if an argument looks like an override: starts with + or ~, or has '=' after a key.
bool looks_like_override(std::string_view text);

/// Parses an override. Throws Error (config) with the column and the expected syntax. Sweeps (a,b;
/// choice, range, interval, glob, and sort, shuffle and tag of them) are not supported.
Override parse_override(std::string_view text);

/// Parses only the part after '='; `source` is used in messages.
Value parse_override_value(std::string_view text, std::string_view source);

/// Calls a function of the grammar: int, float, str, bool (element-wise), sort. `names` are the
/// argument names; empty for positional arguments.
Value call_override_function(
    const std::string& name, const std::vector<std::string>& names, std::vector<Value> arguments);

}  // namespace lockstep::config
