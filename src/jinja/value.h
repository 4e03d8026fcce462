// What templates compute with: Python's values, as far as chat templates need them.
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

/// What a list is in Python, by which it prints, compares and is counted.
enum class ListKind : uint8_t {
  kList,
  kTuple,
  kRange,  // of range()
  kView,   // keys(), values() and items() of a dict: no item has a place
  kOnce,   // what filters make while it is read: read once, always true, has no length
};
struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  mutable bool is_spent = false;  // kOnce, and read
  ~List();
  bool is_written() const { return kind == ListKind::kList || kind == ListKind::kTuple; }
  bool has_places() const { return is_written() || kind == ListKind::kRange; }
};
/// In the order in which keys came. `is_namespace`: an object with attributes, which may be set
/// unless it is a loop.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  bool is_namespace = false, is_loop = false;
  ~Dict();
  const Value* find(const Value& key) const;
  void set(const Value& key, Value value);
};
/// What a call is given.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
  /// The value by position or name; null: not given.
  const Value* find(size_t position, std::string_view name) const;
  /// Error where more were given than `most`, or by other names.
  void check(
      std::string_view callee,
      size_t most,
      const std::vector<const char*>& names,
      bool any_names = false) const;
};
using Callable = std::function<Value(const Arguments&)>;

/// A name that has no value: empty text, false, nothing to iterate over. Its items are an error.
struct Undefined {
  std::string name;
};
struct None {};

/// Cheap to copy: texts, lists and dicts are shared, and nothing but a namespace is changed once
/// made.
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
  /// bool is one of Python's integers.
  bool is_integer() const { return is_bool() || std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integer() || is_float(); }
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }
  bool is_callable() const { return std::holds_alternative<std::shared_ptr<Callable>>(data_); }

  /// Errors (kData) where the value is of another type.
  int64_t integer() const;
  double number() const;
  const std::string& string() const;
  const List& list() const;
  Dict& dict() const;
  const Callable& callable() const;
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  /// A text that `safe` or `escape` made: others that are added to it are escaped.
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

/// Python's names of types: "str", "int", "NoneType".
std::string_view type_name(const Value& value);
/// Error (kData) of what Python takes for no key: lists and dicts.
void check_key(const Value& key);
bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
/// a < b of numbers, strings and lists. Error (kData) of others.
bool less(const Value& a, const Value& b);
/// `in`: an item of a list, a key of a dict, a part of a string.
bool contains(const Value& all, const Value& one);
/// What `for` goes over: items, keys, characters. Error (kData) where it cannot, and the second
/// time of what is read once, where Jinja would find nothing.
std::vector<Value> iterate(const Value& value);
/// str() and repr().
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
/// As json.dumps takes them.
struct JsonStyle {
  bool ensures_ascii = false, sorts_keys = false, has_lines = false;
  std::string indent;  // of a level, with lines
  std::string between_items = ", ", behind_key = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

/// Throws an Error (kData).
[[noreturn]] void fail(std::string message);

}  // namespace lockstep::jinja
