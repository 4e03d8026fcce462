// Untyped configuration tree of values from files and overrides, each with its origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/origin.h"

namespace lockstep::config {

/// Names on the path from the root to a value: {"training", "seed"}. List elements are named by
/// index.
using Path = std::vector<std::string>;

struct Entry;

struct Value {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  /// Text of a scalar as written. Its type is determined by the field to which it is bound.
  std::string text;
  /// True if the scalar was quoted or escaped and is therefore a string.
  bool quoted = false;
  std::vector<Value> items;    // elements of a list
  std::vector<Entry> entries;  // entries of a map in file order, with unique names
  Origin origin = {};

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }

  static Value scalar(std::string text, bool quoted = false, Origin origin = {});
  static Value null(Origin origin = {});
  static Value list(Origin origin = {});
  static Value map(Origin origin = {});

  /// Returns an entry of a map. Returns nullptr if it does not exist or this is not a map.
  const Value* find(std::string_view name) const;
  Value* find(std::string_view name);
  /// Returns an entry of a map. Adds a null entry if it does not exist.
  Value& at_or_add(const std::string& name);
  /// Removes an entry. Returns false if it does not exist.
  bool erase(std::string_view name);
  /// Returns the value at a path through maps and lists, or nullptr.
  const Value* find(const Path& path) const;
  Value* find(const Path& path);
};

struct Entry {
  std::string name;
  Value value;
};

/// Merges `over` into `base`. Maps are merged by name; other values are replaced.
void merge(Value& base, Value over);
/// Merges `value` at `path`, creating missing maps. Returns false if the path is invalid: a list
/// index is out of range, or a name follows a scalar.
bool merge_at(Value& base, const Path& path, Value value);
/// Sets the origin of a value and all its descendants.
void set_origin(Value& value, const Origin& origin);
/// Sets Origin::order of a value and all its descendants.
void set_order(Value& value, int64_t order);

/// to_text() returns a value on one line in Hydra's syntax: {a: 1, b: [x, y]}. short_text()
/// truncates it to 80 characters for messages.
std::string to_text(const Value& value);
std::string short_text(const Value& value);
/// Returns the value as JSON. Unquoted numbers, booleans and null keep their type.
std::string to_json_text(const Value& value);

/// Joins names with dots: "training.seed".
std::string join(const Path& path);
/// Splits at dots. "a[0].b" becomes a, 0, b. Empty names are kept.
Path split_path(std::string_view dotted);

/// Type of an unquoted scalar according to Hydra's override grammar (YAML without yes and no).
enum class ScalarType { kNull, kBool, kInteger, kFloat, kString };
ScalarType scalar_type(const Value& value);

}  // namespace lockstep::config
