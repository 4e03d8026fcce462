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
    kChange,    // key=value: the key must be there
    kAdd,       // +key=value: it must not
    kForceAdd,  // ++key=value: either
    kDelete,    // ~key or ~key=value
  };
  Kind kind = Kind::kChange;
  /// "training.seed", or a config group "model" or "hydra/launcher".
  std::string key;
  /// What follows '@': the package that a group's choice goes to. May be empty ("model@=x").
  std::optional<std::string> package;
  /// Absent for ~key alone. "key=" is the empty string.
  std::optional<Value> value;
  /// The override as it was typed.
  std::string text;
  /// It was a flag, --key value: it never chooses an option of a config group.
  bool is_flag = false;
};

/// Whether an argument has the form of an override: it begins with + or ~, or has '=' after a key.
bool looks_like_override(std::string_view text);

/// Throws Error(kConfig) with the column and what was expected. Sweeps (a,b; choice, range,
/// interval, glob, and sort, shuffle and tag of them) are refused with the reason.
Override parse_override(std::string_view text);

/// The part after '=' alone; `source` is for messages.
Value parse_override_value(std::string_view text, std::string_view source);

/// A function of the grammar: int, float, str, bool (element by element), sort. `names` are the
/// names of the arguments, empty where they were given by position.
Value call_override_function(
    const std::string& name, const std::vector<std::string>& names, std::vector<Value> arguments);

}  // namespace lockstep::config
