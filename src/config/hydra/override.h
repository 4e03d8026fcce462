// Parser for command-line overrides in Hydra's grammar (hydra-core 1.3, OverrideLexer.g4 and
// OverrideParser.g4).
//
//   override := key '=' value? | '+' key '=' value? | '++' key '=' value? | '~' key ('=' value?)?
//   key      := package-or-group ('@' package)?
//   value    := element | element (',' element)+            the second is a sweep
//   element  := primitive | '[' list ']' | '{' dict '}' | function '(' arguments ')'
//
// Extensions to Hydra: non-ASCII letters need no quotes, interpolations may nest, and an index may
// be written as a[0].
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
    kForceAdd,  // ++key=value: the key may exist or not
    kDelete,    // ~key or ~key=value
  };
  Kind kind = Kind::kChange;
  /// Key ("training.seed") or config group ("model", "hydra/launcher").
  std::string key;
  /// Text after '@': the target package of a group. May be empty ("model@=x").
  std::optional<std::string> package;
  /// Value; nullopt for ~key. For "key=" it is the empty string.
  std::optional<Value> value;
  /// Override as typed.
  std::string text;
  /// True for flags (--key value), which never select an option of a config group.
  bool is_flag = false;
};

/// Returns true if an argument looks like an override: it starts with + or ~, or a key is followed
/// by '='.
bool looks_like_override(std::string_view text);

/// Parses an override. Throws Error (config) with the column and the expected syntax. Sweeps are
/// not supported (a,b; choice, range, interval, glob; sort, shuffle and tag of sweeps).
Override parse_override(std::string_view text);

/// Parses the text after '='. `source` is used in messages.
Value parse_override_value(std::string_view text, std::string_view source);

/// Calls an override function: sort, or element-wise int, float, str, bool. `names` contains the
/// argument names; they are empty for positional arguments.
Value call_override_function(
    const std::string& name, const std::vector<std::string>& names, std::vector<Value> arguments);

}  // namespace lockstep::config
