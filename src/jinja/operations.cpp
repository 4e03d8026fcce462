// What operators do.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "jinja/builtins.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

[[noreturn]] void fail_operands(const std::string& op, const Value& a, const Value& b) {
  fail(fmt::format("{} and {} have no operator {}", type_name(a), type_name(b), op));
}

int64_t floor_of(int64_t a, int64_t b) {
  const int64_t whole = a / b;
  return whole - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value of_integers(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**" && b >= 0) {
    result = 1;
    for (int64_t i = 0; i < b && !overflows && (result != 0 && (a != 1 || i == 0)); ++i) {
      overflows = __builtin_mul_overflow(result, a, &result);
    }
  } else if (op == "**") {
    return std::pow(static_cast<double>(a), static_cast<double>(b));
  } else if (b == 0) {
    fail("a division by zero");
  } else if (op == "/") {
    return static_cast<double>(a) / static_cast<double>(b);
  } else if (a == std::numeric_limits<int64_t>::min()) {
    overflows = true;
  } else {
    result = op == "//" ? floor_of(a, b) : a - floor_of(a, b) * b;
  }
  if (overflows) {
    fail(fmt::format("{} {} {} is too large", a, op, b));
  }
  return result;
}

Value of_floats(const std::string& op, double a, double b) {
  if (op == "+") {
    return a + b;
  }
  if (op == "-") {
    return a - b;
  }
  if (op == "*") {
    return a * b;
  }
  if (op == "**") {
    return std::pow(a, b);
  }
  if (b == 0) {
    fail("a division by zero");
  }
  return op == "/" ? a / b : op == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

/// A text or a list several times.
Value repeated(const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (value.is_string()) {
    const std::string& text = value.string();
    if (!text.empty() && times > kMostBytes / static_cast<int64_t>(text.size())) {
      fail("a text of more than 256 MiB");
    }
    std::string out;
    for (int64_t i = 0; i < times; ++i) {
      out += text;
    }
    return out;
  }
  const List& list = value.list();
  if (!list.items.empty() && times > kMostItems / static_cast<int64_t>(list.items.size())) {
    fail(fmt::format("a list of more than {} items", kMostItems));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), list.is_tuple);
}

/// Positions that a slice takes of `size`, as Python's slice.indices.
std::vector<int64_t> slice_positions(
    int64_t size, const Value& from, const Value& to, const Value& by) {
  const auto is_given = [](const Value& x) { return !x.is_undefined() && !x.is_none(); };
  const int64_t step = is_given(by) ? by.integer() : 1;
  if (step == 0) {
    fail("a slice's step is 0");
  }
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto place = [&](const Value& x, int64_t otherwise) {
    if (!is_given(x)) {
      return otherwise;
    }
    const int64_t at = x.integer();
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  std::vector<int64_t> positions;
  const int64_t end = place(to, step > 0 ? size : -1);
  for (int64_t at = place(from, step > 0 ? 0 : size - 1); step > 0 ? at < end : at > end;
       at += step) {
    positions.push_back(at);
  }
  return positions;
}

}  // namespace

Value arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (op == "~") {
    return to_text(a) + to_text(b);
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) {
      fail(fmt::format("'{}' is undefined", value->undefined_name()));
    }
  }
  if (a.is_integer() && b.is_integer()) {
    return of_integers(op, a.integer(), b.integer());
  }
  if (a.is_number() && b.is_number()) {
    return of_floats(op, a.number(), b.number());
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    return a.string() + b.string();
  }
  if (op == "+" && a.is_list() && b.is_list() && a.list().is_tuple == b.list().is_tuple) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    if (std::ssize(items) > kMostItems) {
      fail(fmt::format("a list of more than {} items", kMostItems));
    }
    return make_list(std::move(items), a.list().is_tuple);
  }
  if (op == "*" && (a.is_string() || a.is_list()) && b.is_integer()) {
    return repeated(a, b.integer());
  }
  if (op == "*" && a.is_integer() && (b.is_string() || b.is_list())) {
    return repeated(b, a.integer());
  }
  fail_operands(op, a, b);
}

bool compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") {
    return equal(a, b);
  }
  if (op == "!=") {
    return !equal(a, b);
  }
  if (op == "in" || op == "not in") {
    if (b.is_string() && !a.is_string()) {
      fail_operands(op, a, b);
    }
    return contains(b, a) == (op == "in");
  }
  const bool swaps = op == ">" || op == "<=";
  const bool found = swaps ? less(b, a) : less(a, b);
  return op == "<" || op == ">" ? found : !found;
}

Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined", value.undefined_name()));
  }
  const std::vector<Value> items = iterate(value);
  const auto positions = slice_positions(std::ssize(items), from, to, step);
  if (value.is_string()) {
    std::string text;
    for (const int64_t at : positions) {
      text += items[static_cast<size_t>(at)].string();
    }
    return text;
  }
  std::vector<Value> taken;
  for (const int64_t at : positions) {
    taken.push_back(items[static_cast<size_t>(at)]);
  }
  return make_list(std::move(taken), value.list().is_tuple);
}

Value attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined, and has no attribute '{}'", value.undefined_name(), name));
  }
  if (auto method = find_method(value, name)) {
    return *method;
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(name)) {
      return *found;
    }
  }
  if (name.starts_with('_')) {  // Python's insides, which a sandbox does not show
    fail(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
  }
  return Undefined{fmt::format("{} object' has no attribute '{}", type_name(value), name)};
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined, and has no items", value.undefined_name()));
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(key)) {
      return *found;
    }
  } else if ((value.is_list() || value.is_string()) && key.is_integer()) {
    const std::vector<Value> items = iterate(value);
    const int64_t size = std::ssize(items), at = key.integer();
    const int64_t place = at < 0 ? at + size : at;
    if (place >= 0 && place < size) {
      return items[static_cast<size_t>(place)];
    }
  }
  if (key.is_string()) {
    if (auto method = find_method(value, key.string())) {
      return *method;
    }
  }
  return Undefined{fmt::format("{} object' has no element '{}", type_name(value), to_text(key))};
}

}  // namespace lockstep::jinja
