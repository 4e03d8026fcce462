// Template values: the subset of Python types that chat templates use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::jinja {

class Value;

/// Memory of a string, list or dict, counted until it is destroyed. Work limits the memory of one
/// rendering.
class Held {
 public:
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held();
  /// Throws Error (data) if the limit of the current rendering is exceeded.
  void add(int64_t bytes);

 private:
  int64_t bytes_ = 0;
};

/// Python type of a list. It determines printing, comparison and whether the list has a length.
enum class ListKind : uint8_t {
  kList,
  kTuple,
  kRange,  // range()
  kView,   // keys(), values() and items() of a dict; cannot be indexed
  kOnce,   // generator returned by a filter: can be iterated once, is always true, has no length
};
struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  mutable bool is_spent = false;  // true for a kOnce list that has been iterated
  Held held;
  ~List();
  bool is_written() const { return kind == ListKind::kList || kind == ListKind::kTuple; }
  bool has_places() const { return is_written() || kind == ListKind::kRange; }
};
/// Insertion-ordered dict. With `is_namespace`, an object whose attributes may be set, except for a
/// `loop` object.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  bool is_namespace = false, is_loop = false;
  Held held;
  ~Dict();
  const Value* find(const Value& key) const;
  void set(const Value& key, Value value);
  void set_all(std::vector<std::pair<Value, Value>> all);
};
/// Arguments of a call.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
  /// Returns an argument by position or name. Returns null if it is missing.
  const Value* find(size_t position, std::string_view name) const;
  /// Throws Error if there are more than `most` arguments, or unknown names.
  void check(
      std::string_view callee,
      size_t most,
      const std::vector<const char*>& names,
      bool any_names = false) const;
};
using Callable = std::function<Value(const Arguments&)>;

/// Undefined value. It prints as an empty string, is false and iterates over nothing. Accessing its
/// items is an error.
struct Undefined {
  std::string name;
};
struct None {};

/// Template value. Cheap to copy because strings, lists and dicts are shared. They are immutable,
/// except for namespaces.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}                                       // NOLINT
  Value(Undefined undefined) : data_(std::move(undefined)) {}          // NOLINT
  Value(bool value) : data_(value) {}                                  // NOLINT
  Value(int64_t value) : data_(value) {}                               // NOLINT
  Value(double value) : data_(value) {}                                // NOLINT
  Value(std::string value);                                            // NOLINT
  Value(std::string_view value) : Value(std::string(value)) {}         // NOLINT
  Value(const char* value) : Value(std::string(value)) {}              // NOLINT
  Value(std::shared_ptr<List> value) : data_(std::move(value)) {}      // NOLINT
  Value(std::shared_ptr<Dict> value) : data_(std::move(value)) {}      // NOLINT
  Value(std::shared_ptr<Callable> value) : data_(std::move(value)) {}  // NOLINT

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  /// bool is a subtype of int, as in Python.
  bool is_integer() const { return is_bool() || std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integer() || is_float(); }
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }
  bool is_callable() const { return std::holds_alternative<std::shared_ptr<Callable>>(data_); }

  /// Typed access. Throws Error (data) if the value has another type.
  int64_t integer() const;
  double number() const;
  const std::string& string() const;
  const List& list() const;
  Dict& dict() const;
  const Callable& callable() const;
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  /// Returns a string marked by `safe` or `escape`. Jinja escapes other strings that are added to
  /// it.
  static Value marked(std::string text);
  bool is_marked() const { return is_marked_; }

 private:
  using Text = std::shared_ptr<const std::string>;
  std::variant<
      Undefined,
      None,
      bool,
      int64_t,
      double,
      Text,
      std::shared_ptr<List>,
      std::shared_ptr<Dict>,
      std::shared_ptr<Callable>>
      data_;
  bool is_marked_ = false;
};

Value make_list(std::vector<Value> items, ListKind kind = ListKind::kList);
Value make_dict(std::vector<std::pair<Value, Value>> entries);
Value make_callable(Callable function);

/// Returns the Python type name: "str", "int", "NoneType".
std::string_view type_name(const Value& value);
/// Throws Error (data) if the value is not a valid dict key. Lists and dicts are invalid.
void check_key(const Value& key);
bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
/// Returns a < b for numbers, strings and lists. Throws Error (data) for other types.
bool less(const Value& a, const Value& b);
/// Implements `in` for items of a list, keys of a dict and substrings of a string.
bool contains(const Value& all, const Value& one);
/// Returns the values that `for` iterates over: items, keys or characters. Throws Error (data) if
/// the value is not iterable or is a generator that was already consumed (Jinja would iterate over
/// nothing).
std::vector<Value> iterate(const Value& value);
/// Implement str() and repr().
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
/// Options of json.dumps().
struct JsonStyle {
  bool ensures_ascii = false, sorts_keys = false, has_lines = false;
  std::string indent;  // indentation per level if has_lines
  std::string between_items = ", ", behind_key = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

/// Throws Error (data) with a message.
[[noreturn]] void fail(std::string message);

}  // namespace lockstep::jinja
