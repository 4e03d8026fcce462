// List of all configuration keys, built with the visitor in config/core/fields.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/config.h"
#include "config/core/value.h"

namespace lockstep::config {

struct Key {
  enum class Type { kSection, kBool, kInteger, kNumber, kText, kList, kMap, kRecords };
  std::string name;  // "training.seed"
  Type type = Type::kText;
  bool optional = false;  // may be null
  std::string help;
  std::vector<std::string> choices;  // allowed values of a string; empty: any
  Value default_value;
};

/// Returns every key in struct order. A section precedes its keys.
const std::vector<Key>& all_keys();
/// Returns nullptr if the key does not exist.
const Key* find_key(const std::string& name);
/// Returns the names of all keys except sections.
const std::vector<std::string>& key_names();
/// Returns the name nearest to `word` among the keys of its section (without one: of training) and
/// `more`, or the key of another section that has this name.
std::optional<std::string> nearest_key(
    std::string_view word, std::span<const std::string> more = {});
/// Returns " Did you mean 'x'?" with the nearest key; an empty string if none is close.
std::string did_you_mean_key(std::string_view word, std::span<const std::string> more = {});
/// Returns true for top-level sections: model, tokenizer, data, ...
bool is_section(const std::string& name);

/// Converts a configuration to a tree that contains every key.
Value to_value(const Config& config);
/// Returns the type of a key for error messages: "an integer", "true or false", "one of a, b".
std::string type_text(const Key& key);

}  // namespace lockstep::config
