// A configuration as a tree, before it has types: what a file or an override says, each part with
// its origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/origin.h"

namespace lockstep::config {

/// The names from the root to a value: {"training", "seed"}. An element of a list is named by its
/// index.
using Path = std::vector<std::string>;

struct Entry;

struct Value {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  /// Of a scalar: the text as written. Its type is decided by the field that it is bound to.
  std::string text;
  /// Of a scalar: it was quoted (or escaped), so that it is a string whatever it looks like.
  bool quoted = false;
  std::vector<Value> items;    // of a list
  std::vector<Entry> entries;  // of a map, in the order of the file, no name twice
  Origin origin = {};

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }

  static Value scalar(std::string text, bool quoted = false, Origin origin = {});
  static Value null(Origin origin = {});
  static Value list(Origin origin = {});
  static Value map(Origin origin = {});

  /// The entry of a map; nullptr where there is none, or this is no map.
  const Value* find(std::string_view name) const;
  Value* find(std::string_view name);
  /// The entry of a map, made (null) where there is none.
  Value& at_or_add(const std::string& name);
  /// Takes an entry away; false where there was none.
  bool erase(std::string_view name);
  /// The value at the end of a path through maps and lists; nullptr where it ends early.
  const Value* find(const Path& path) const;
  Value* find(const Path& path);
};

struct Entry {
  std::string name;
  Value value;
};

/// Puts `over` on `base`: maps are merged name by name, anything else is replaced.
void merge(Value& base, Value over);
/// Puts `value` at `path` as merge() does, making the maps on the way. False where the way is
/// blocked: an index that a list does not have, or a name below a scalar.
bool merge_at(Value& base, const Path& path, Value value);
/// Gives `origin` to a value and everything in it.
void set_origin(Value& value, const Origin& origin);
/// Gives Origin::order to a value and everything in it.
void set_order(Value& value, int64_t order);

/// One line of Hydra's form: {a: 1, b: [x, y]}. For messages, and cut there to 80 characters.
std::string to_text(const Value& value);
std::string short_text(const Value& value);
/// The value as JSON text; numbers, booleans and null are recognised in unquoted scalars.
std::string to_json_text(const Value& value);

/// "training.seed"
std::string join(const Path& path);
/// Splits at dots; "a[0].b" is a.0.b. Empty parts are kept.
Path split_path(std::string_view dotted);

/// What an unquoted scalar is by the rules of Hydra's overrides (which are YAML's, without yes and
/// no).
enum class ScalarType { kNull, kBool, kInteger, kFloat, kString };
ScalarType scalar_type(const Value& value);

}  // namespace lockstep::config
