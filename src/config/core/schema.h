// The keys of the configuration as data, made from the visitor of config/core/fields.h.
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
  std::vector<std::string> choices;  // of a text; empty: any
  Value default_value;
};

/// Every key, sections before what is in them, in the order of the structs.
const std::vector<Key>& all_keys();
/// nullptr where there is no such key.
const Key* find_key(const std::string& name);
/// The names of all keys that are no sections.
const std::vector<std::string>& key_names();
/// The key that `word` is nearest to, with its section where that must be written, or one of
/// `more`.
std::optional<std::string> nearest_key(
    std::string_view word, std::span<const std::string> more = {});
/// " Did you mean 'x'?" of it, or nothing.
std::string did_you_mean_key(std::string_view word, std::span<const std::string> more = {});
/// Whether `name` is a section of the root: model, tokenizer, data, ...
bool is_section(const std::string& name);

/// A configuration as a tree, every key in it.
Value to_value(const Config& config);
/// The reverse, for one key: "INTEGER", "true or false", "one of a, b".
std::string type_text(const Key& key);

}  // namespace lockstep::config
