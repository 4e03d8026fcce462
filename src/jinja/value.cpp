// Implements template values: access, comparison, iteration and destruction.
#include "jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/work.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {

namespace {

std::string_view name_of(ListKind kind) {
  switch (kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kView:
      return "view of a dict";
    case ListKind::kOnce:
      break;
  }
  return "generator";
}

/// Returns a value's text, truncated for messages, if it has one.
std::string shown(const Value& value) {
  constexpr size_t kMost = 60;
  if (value.is_callable() || (value.is_list() && !value.list().is_written())) {
    return "the value";
  }
  const std::string text = to_repr(value);
  return text.size() <= kMost ? text
                              : text::to_utf8(text::to_code_points(text).substr(0, kMost)) + "...";
}

/// Values of lists and dicts being destroyed. They are destroyed iteratively so that deep nesting
/// does not overflow the stack. Null if no destruction is in progress.
thread_local std::vector<Value>* ending = nullptr;

void end(Value& value) {
  if (ending != nullptr) {
    ending->push_back(std::move(value));
    return;
  }
  std::vector<Value> waiting;
  ending = &waiting;
  waiting.push_back(std::move(value));
  while (!waiting.empty()) {
    const Value next = std::move(waiting.back());
    waiting.pop_back();
  }
  ending = nullptr;
}

bool holds_values(const Value& value) {
  return value.is_list() || value.is_dict() || value.is_callable();
}

/// Limits the nesting depth of comparisons.
class Nested {
 public:
  Nested() {
    constexpr int kDeepest = 200;
    if (depth == kDeepest) {
      fail(fmt::format("a compared value is nested deeper than {}", kDeepest));
    }
    ++depth;
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { --depth; }

 private:
  static thread_local int depth;
};

thread_local int Nested::depth = 0;

}  // namespace

List::~List() {
  for (Value& item : items) {
    if (holds_values(item)) {
      end(item);
    }
  }
}

Dict::~Dict() {
  for (auto& [key, value] : entries) {
    for (Value* const part : {&key, &value}) {
      if (holds_values(*part)) {
        end(*part);
      }
    }
  }
}

void fail(std::string message) {
  throw Error(ErrorKind::kData, std::move(message));
}

Value Value::marked(std::string text) {
  Value made(std::move(text));
  made.is_marked_ = true;
  return made;
}

const Value* Dict::find(const Value& key) const {
  const auto found = std::find_if(
      entries.begin(), entries.end(), [&](const auto& entry) { return equal(entry.first, key); });
  return found == entries.end() ? nullptr : &found->second;
}

void Dict::set(const Value& key, Value value) {
  for (auto& entry : entries) {
    if (equal(entry.first, key)) {
      entry.second = std::move(value);
      return;
    }
  }
  held.add(sizeof(entries[0]));
  entries.emplace_back(key, std::move(value));
}

void Dict::set_all(std::vector<std::pair<Value, Value>> all) {
  held.add(static_cast<int64_t>(all.size() * sizeof(all[0])));
  entries = std::move(all);
}

const Value* Arguments::find(size_t position, std::string_view name) const {
  if (position < values.size()) {
    return &values[position];
  }
  for (const auto& [given, value] : named) {
    if (given == name) {
      return &value;
    }
  }
  return nullptr;
}

void Arguments::check(
    std::string_view callee,
    size_t most,
    const std::vector<const char*>& names,
    bool any_names) const {
  if (values.size() > most) {
    fail(fmt::format("{} takes {} arguments, but {} were given", callee, most, values.size()));
  }
  for (const auto& [name, value] : named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end() && !any_names) {
      fail(fmt::format("{} has no argument {}", callee, name));
    }
    if (found != names.end() && found - names.begin() < std::ssize(values)) {
      fail(fmt::format("{} got multiple values for its argument {}", callee, name));
    }
  }
}

void check_size(const std::string& text) {
  if (std::ssize(text) > kMostBytes) {
    fail("a string of more than 64 MiB");
  }
}

Value::Value(std::string value) {
  struct HeldText {
    std::string text;
    Held held;
  };
  check_size(value);
  Work::add_bytes(std::ssize(value));
  const auto made = std::make_shared<HeldText>();
  made->held.add(static_cast<int64_t>(sizeof(HeldText) + value.size()));
  made->text = std::move(value);
  data_ = Text(made, &made->text);
}

int64_t Value::integer() const {
  if (is_bool()) {
    return std::get<bool>(data_) ? 1 : 0;
  }
  if (const auto* value = std::get_if<int64_t>(&data_)) {
    return *value;
  }
  fail(fmt::format("{} is {}, expected an integer", shown(*this), type_name(*this)));
}

double Value::number() const {
  const auto* value = std::get_if<double>(&data_);
  return value != nullptr ? *value : static_cast<double>(integer());
}

const std::string& Value::string() const {
  if (const auto* value = std::get_if<Text>(&data_)) {
    return **value;
  }
  fail(fmt::format("{} is {}, expected a string", shown(*this), type_name(*this)));
}

const List& Value::list() const {
  if (const auto* value = std::get_if<std::shared_ptr<List>>(&data_)) {
    return **value;
  }
  fail(fmt::format("{} is {}, expected a list", shown(*this), type_name(*this)));
}

Dict& Value::dict() const {
  if (const auto* value = std::get_if<std::shared_ptr<Dict>>(&data_)) {
    return **value;
  }
  fail(fmt::format("{} is {}, expected a dict", shown(*this), type_name(*this)));
}

const Callable& Value::callable() const {
  if (const auto* value = std::get_if<std::shared_ptr<Callable>>(&data_)) {
    return **value;
  }
  if (is_undefined()) {
    const bool is_told = undefined_name().find("' has no ") != std::string::npos;
    fail(fmt::format(
        "'{}'{}, so it cannot be called", undefined_name(), is_told ? "" : " is undefined"));
  }
  fail(fmt::format("{} is {} and cannot be called", shown(*this), type_name(*this)));
}

Value make_list(std::vector<Value> items, ListKind kind) {
  auto list = std::make_shared<List>();
  list->held.add(static_cast<int64_t>(items.size() * sizeof(Value)));
  list->items = std::move(items);
  list->kind = kind;
  return list;
}

Value make_dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  dict->set_all(std::move(entries));
  return dict;
}

Value make_callable(Callable function) {
  return std::make_shared<Callable>(std::move(function));
}

std::string_view type_name(const Value& value) {
  return value.is_undefined() ? "undefined"
         : value.is_none()    ? "NoneType"
         : value.is_bool()    ? "bool"
         : value.is_integer() ? "int"
         : value.is_float()   ? "float"
         : value.is_string()  ? "str"
         : value.is_list()    ? name_of(value.list().kind)
         : value.is_dict()    ? "dict"
                              : "function";
}

void check_key(const Value& key) {
  if (key.is_dict() || (key.is_list() && key.list().kind == ListKind::kList)) {
    fail(fmt::format("{} is {}, which is not a valid key of a dict", shown(key), type_name(key)));
  }
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) {
    return false;
  }
  if (value.is_number()) {
    return value.number() != 0;
  }
  return value.is_string() ? !value.string().empty()
         : value.is_list() ? value.list().kind == ListKind::kOnce || !value.list().items.empty()
         : value.is_dict() && !value.dict().is_namespace ? !value.dict().entries.empty()
                                                         : true;
}

bool equal(const Value& a, const Value& b) {
  const Nested nested;
  Work::add(4);
  if (a.is_integer() && b.is_integer()) {
    return a.integer() == b.integer();
  }
  if (a.is_number() && b.is_number()) {
    return a.number() == b.number();
  }
  if (a.is_string() && b.is_string()) {
    Work::add_bytes(std::ssize(a.string()) == std::ssize(b.string()) ? std::ssize(a.string()) : 0);
    return a.string() == b.string();
  }
  if (a.is_list() && b.is_list()) {
    const List &x = a.list(), &y = b.list();
    if (x.kind == ListKind::kView && y.kind == ListKind::kView) {
      fail("views of dicts cannot be compared: add | list after both");
    }
    if (x.kind == ListKind::kOnce || y.kind == ListKind::kOnce) {
      return &x == &y;
    }
    return x.kind == y.kind &&
           std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
  }
  if (a.is_dict() && b.is_dict()) {
    const Dict &x = a.dict(), &y = b.dict();
    if (x.is_namespace || y.is_namespace) {
      return &x == &y;
    }
    return x.entries.size() == y.entries.size() &&
           std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
             const Value* other = y.find(entry.first);
             return other != nullptr && equal(entry.second, *other);
           });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
  const Nested nested;
  Work::add(16);
  if (a.is_integer() && b.is_integer()) {
    return a.integer() < b.integer();
  }
  if (a.is_number() && b.is_number()) {
    return a.number() < b.number();
  }
  if (a.is_string() && b.is_string()) {
    return a.string() < b.string();  // UTF-8 byte order equals code point order
  }
  if (a.is_list() && b.is_list() && a.list().is_written() && a.list().kind == b.list().kind) {
    const auto &x = a.list().items, &y = b.list().items;
    const auto [p, q] = std::mismatch(x.begin(), x.end(), y.begin(), y.end(), equal);
    return p == x.end() || q == y.end() ? x.size() < y.size() : less(*p, *q);
  }
  fail(fmt::format("{} and {} cannot be ordered", type_name(a), type_name(b)));
}

bool contains(const Value& all, const Value& one) {
  if (all.is_string()) {
    return all.string().find(one.string()) != std::string::npos;
  }
  if (all.is_dict() && !all.dict().is_namespace) {
    check_key(one);
    return all.dict().find(one) != nullptr;
  }
  const std::vector<Value> items = iterate(all);
  return std::any_of(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, one); });
}

std::vector<Value> iterate(const Value& value) {
  if (value.is_list()) {
    const List& list = value.list();
    Work::add_items(std::ssize(list.items));
    if (list.is_spent) {
      fail(
          "the result of a filter is iterated a second time, when Jinja finds it empty: add | list "
          "after the filter");
    }
    list.is_spent = list.kind == ListKind::kOnce;
    return list.items;
  }
  std::vector<Value> items;
  if (value.is_dict() && !value.dict().is_namespace) {
    for (const auto& [key, entry] : value.dict().entries) {
      items.push_back(key);
    }
  } else if (value.is_string()) {
    const std::string& text = value.string();
    Work::add(64 * std::ssize(text));
    for (size_t at = 0; at < text.size(); at += text::code_point_length(text[at])) {
      items.emplace_back(text.substr(at, text::code_point_length(text[at])));
    }
  } else if (!value.is_undefined()) {
    fail(fmt::format("{} is {} and has no items", shown(value), type_name(value)));
  }
  return items;
}

}  // namespace lockstep::jinja
