#include "jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {

void fail(std::string message) {
  throw Error(ErrorKind::kData, std::move(message));
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
  entries.emplace_back(key, std::move(value));
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
    std::string_view callee, size_t most, std::initializer_list<const char*> names) const {
  if (values.size() > most) {
    fail(fmt::format("{} takes {} arguments, and {} are given", callee, most, values.size()));
  }
  for (const auto& [name, value] : named) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail(fmt::format("{} takes no argument {}", callee, name));
    }
  }
}

int64_t Value::integer() const {
  if (is_bool()) {
    return std::get<bool>(data_) ? 1 : 0;
  }
  if (const auto* value = std::get_if<int64_t>(&data_)) {
    return *value;
  }
  fail(fmt::format("{} is {}, and an integer is needed", to_repr(*this), type_name(*this)));
}

double Value::number() const {
  const auto* value = std::get_if<double>(&data_);
  return value != nullptr ? *value : static_cast<double>(integer());
}

const std::string& Value::string() const {
  if (const auto* value = std::get_if<std::string>(&data_)) {
    return *value;
  }
  fail(fmt::format("{} is {}, and a string is needed", to_repr(*this), type_name(*this)));
}

const List& Value::list() const {
  if (const auto* value = std::get_if<std::shared_ptr<List>>(&data_)) {
    return **value;
  }
  fail(fmt::format("{} is {}, and a list is needed", to_repr(*this), type_name(*this)));
}

Dict& Value::dict() const {
  if (const auto* value = std::get_if<std::shared_ptr<Dict>>(&data_)) {
    return **value;
  }
  fail(fmt::format("{} is {}, and a dict is needed", to_repr(*this), type_name(*this)));
}

const Callable& Value::callable() const {
  if (const auto* value = std::get_if<std::shared_ptr<Callable>>(&data_)) {
    return **value;
  }
  if (is_undefined()) {
    fail(fmt::format("'{}' is undefined, and is called", undefined_name()));
  }
  fail(fmt::format("{} is {}, and is called", to_repr(*this), type_name(*this)));
}

Value make_list(std::vector<Value> items, bool is_tuple) {
  return std::make_shared<List>(List{std::move(items), is_tuple});
}

Value make_dict(std::vector<std::pair<Value, Value>> entries) {
  return std::make_shared<Dict>(Dict{std::move(entries), false});
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
         : value.is_list()    ? (value.list().is_tuple ? "tuple" : "list")
         : value.is_dict()    ? "dict"
                              : "function";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) {
    return false;
  }
  if (value.is_number()) {
    return value.number() != 0;
  }
  return value.is_string()                               ? !value.string().empty()
         : value.is_list()                               ? !value.list().items.empty()
         : value.is_dict() && !value.dict().is_namespace ? !value.dict().entries.empty()
                                                         : true;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    return a.integer() == b.integer();
  }
  if (a.is_number() && b.is_number()) {
    return a.number() == b.number();
  }
  if (a.is_string() && b.is_string()) {
    return a.string() == b.string();
  }
  if (a.is_list() && b.is_list()) {
    const List &x = a.list(), &y = b.list();
    return x.is_tuple == y.is_tuple &&
           std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
  }
  if (a.is_dict() && b.is_dict()) {
    const Dict &x = a.dict(), &y = b.dict();
    return x.entries.size() == y.entries.size() &&
           std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
             const Value* other = y.find(entry.first);
             return other != nullptr && equal(entry.second, *other);
           });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    return a.integer() < b.integer();
  }
  if (a.is_number() && b.is_number()) {
    return a.number() < b.number();
  }
  if (a.is_string() && b.is_string()) {
    return a.string() < b.string();  // UTF-8 sorts as code points do
  }
  if (a.is_list() && b.is_list()) {
    const auto &x = a.list().items, &y = b.list().items;
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), less);
  }
  fail(fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

bool contains(const Value& all, const Value& one) {
  if (all.is_string()) {
    return all.string().find(one.string()) != std::string::npos;
  }
  if (all.is_dict()) {
    return all.dict().find(one) != nullptr;
  }
  const std::vector<Value> items = iterate(all);
  return std::any_of(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, one); });
}

std::vector<Value> iterate(const Value& value) {
  if (value.is_list()) {
    return value.list().items;
  }
  std::vector<Value> items;
  if (value.is_dict() && !value.dict().is_namespace) {
    for (const auto& [key, entry] : value.dict().entries) {
      items.push_back(key);
    }
  } else if (value.is_string()) {
    const std::string& text = value.string();
    for (size_t at = 0; at < text.size(); at += text::code_point_length(text[at])) {
      items.emplace_back(text.substr(at, text::code_point_length(text[at])));
    }
  } else if (!value.is_undefined()) {
    fail(fmt::format("{} is {}, and has no items", to_repr(value), type_name(value)));
  }
  return items;
}

}  // namespace lockstep::jinja
