// Implements arithmetic, comparison, slicing, attribute and item operators.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/work.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

[[noreturn]] void fail_operands(const std::string& op, const Value& a, const Value& b) {
  fail(fmt::format("{} and {} do not support the operator {}", type_name(a), type_name(b), op));
}

int64_t floor_of(int64_t a, int64_t b) {
  const int64_t whole = a / b;
  return whole - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// Implements Python's a ** b. Throws Error if the result is infinite or not real.
double power(double a, double b) {
  if (a == 0 && b < 0) {
    fail("division by zero: 0 to a negative power");
  }
  const double result = std::pow(a, b);
  if (std::isfinite(a) && std::isfinite(b) && !std::isfinite(result)) {
    fail(fmt::format("{} ** {} is too large, or not a real number", a, b));
  }
  return result;
}

/// Implements Python's a // b and a % b. The remainder has the sign of `b`.
double floored(double a, double b, bool wants_remainder) {
  double rest = std::fmod(a, b), whole = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    whole -= 1;
  }
  if (wants_remainder) {
    return rest == 0 ? std::copysign(0.0, b) : rest;
  }
  if (whole == 0) {
    return std::copysign(0.0, a / b);
  }
  const double floor = std::floor(whole);
  return whole - floor > 0.5 ? floor + 1 : floor;
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
    // Limits the number of factors. For 0, 1 and -1, two additional factors do not change the
    // result. Other bases overflow with 64 factors.
    const int64_t times = a >= -1 && a <= 1 ? std::min(b, 2 - b % 2) : b;
    for (int64_t i = 0; i < times && !overflows; ++i) {
      overflows = __builtin_mul_overflow(result, a, &result);
    }
  } else if (op == "**") {
    return power(static_cast<double>(a), static_cast<double>(b));
  } else if (b == 0) {
    fail("division by zero");
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
    return power(a, b);
  }
  if (b == 0) {
    fail("division by zero");
  }
  return op == "/" ? a / b : floored(a, b, op == "%");
}

/// Repeats a string or a list.
Value repeated(const Value& value, int64_t times) {
  const bool is_empty = value.is_string() ? value.string().empty() : value.list().items.empty();
  times = is_empty ? 0 : std::max<int64_t>(times, 0);
  if (value.is_string()) {
    const std::string& text = value.string();
    if (times > 0 && times > kMostBytes / static_cast<int64_t>(text.size())) {
      fail("a string of more than 64 MiB");
    }
    std::string out;
    out.reserve(static_cast<size_t>(times) * text.size());
    for (int64_t i = 0; i < times; ++i) {
      out += text;
    }
    return out;
  }
  const List& list = value.list();
  if (times > 0 && times > kMostItems / static_cast<int64_t>(list.items.size())) {
    fail(fmt::format("a list of more than {} items", kMostItems));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), list.kind);
}

/// Returns the indices that a slice selects from `size` items, like Python's slice.indices().
std::vector<int64_t> slice_positions(
    int64_t size, const Value& from, const Value& to, const Value& by) {
  const auto is_given = [](const Value& x) { return !x.is_undefined() && !x.is_none(); };
  const int64_t step = is_given(by) ? by.integer() : 1;
  if (step == 0) {
    fail("the step of a slice must not be 0");
  }
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto place = [&](const Value& x, int64_t otherwise) {
    if (!is_given(x)) {
      return otherwise;
    }
    const int64_t at = std::clamp(x.integer(), -kMostBytes - 1, kMostBytes + 1);
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

std::u32string characters_of(const Value& value) {
  Work::add(8 * std::ssize(value.string()));
  return text::to_code_points(value.string());
}

/// Adds strings if one of them is marked by `safe` or `escape`. Throws Error if Jinja would escape
/// the other operand.
Value with_marked(const std::string& op, const Value& a, const Value& b) {
  const Value& other = a.is_marked() ? b : a;
  if (op != "+" || !other.is_string()) {
    fail(fmt::format(
        "a string marked as safe does not support the operator {}: remove | safe, nothing is "
        "escaped in a chat",
        op));
  }
  if (!other.is_marked() && other.string().find_first_of("&<>'\"") != std::string::npos) {
    fail(
        "a string with & < > ' or \" is added to one marked as safe, and Jinja would escape it: "
        "remove | safe, nothing else is escaped in a chat");
  }
  return Value::marked(a.string() + b.string());
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
  if (a.is_marked() || b.is_marked()) {
    return with_marked(op, a, b);
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    return a.string() + b.string();
  }
  if (op == "+" && a.is_list() && b.is_list() && a.list().is_written() &&
      a.list().kind == b.list().kind) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    if (std::ssize(items) > kMostItems) {
      fail(fmt::format("a list of more than {} items", kMostItems));
    }
    return make_list(std::move(items), a.list().kind);
  }
  const auto can_repeat = [](const Value& value) {
    return value.is_string() || (value.is_list() && value.list().is_written());
  };
  if (op == "*" && can_repeat(a) && b.is_integer()) {
    return repeated(a, b.integer());
  }
  if (op == "*" && a.is_integer() && can_repeat(b)) {
    return repeated(b, a.integer());
  }
  if (op == "%" && a.is_string()) {
    fail("formatting with % is not supported: join the strings with ~");
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
  if (a.is_number() && b.is_number() && (std::isnan(a.number()) || std::isnan(b.number()))) {
    return false;
  }
  const bool swaps = op == ">" || op == "<=";
  const bool found = swaps ? less(b, a) : less(a, b);
  return op == "<" || op == ">" ? found : !found;
}

Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined", value.undefined_name()));
  }
  const auto is_place = [](const Value& x) {
    return x.is_undefined() || x.is_none() || x.is_integer();
  };
  const bool has_places = value.is_string() || (value.is_list() && value.list().has_places());
  if (value.is_list() && value.list().kind == ListKind::kOnce) {
    fail("the result of a filter is not indexable: add | list after the filter");
  }
  if (!has_places || !is_place(from) || !is_place(to) || !is_place(step)) {
    return Undefined{fmt::format("{} object' has no element 'of such a slice", type_name(value))};
  }
  if (value.is_string()) {
    const std::u32string characters = characters_of(value);
    std::string text;
    for (const int64_t at : slice_positions(std::ssize(characters), from, to, step)) {
      text::append_code_point(text, characters[static_cast<size_t>(at)]);
    }
    return text;
  }
  const std::vector<Value>& items = value.list().items;
  const auto positions = slice_positions(std::ssize(items), from, to, step);
  std::vector<Value> taken;
  for (const int64_t at : positions) {
    taken.push_back(items[static_cast<size_t>(at)]);
  }
  return make_list(std::move(taken), value.list().kind);
}

Value attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined and has no attribute '{}'", value.undefined_name(), name));
  }
  if (auto method = find_method(value, name)) {
    return *method;
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(name)) {
      return *found;
    }
  }
  if (value.is_callable()) {
    fail(fmt::format("attributes of functions are not supported: '{}'", name));
  }
  static const std::set<std::string> kOfNumbers{
      "real",
      "imag",
      "conjugate",
      "numerator",
      "denominator",
      "bit_length",
      "bit_count",
      "to_bytes",
      "from_bytes",
      "as_integer_ratio",
      "is_integer",
      "hex",
      "fromhex"};
  if (value.is_number() && kOfNumbers.contains(name)) {
    fail(fmt::format("attributes of numbers are not supported: '{}'", name));
  }
  if (name.starts_with('_')) {  // Python internals, hidden by Jinja's sandbox
    fail(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
  }
  return Undefined{fmt::format("{} object' has no attribute '{}", type_name(value), name)};
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined and has no items", value.undefined_name()));
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(key)) {
      return *found;
    }
  } else if (
      (value.is_string() || (value.is_list() && value.list().has_places())) && key.is_integer()) {
    const std::u32string characters = value.is_string() ? characters_of(value) : U"";
    const int64_t size =
        value.is_string() ? std::ssize(characters) : std::ssize(value.list().items);
    const int64_t place = key.integer() < 0 ? key.integer() + size : key.integer();
    if (place >= 0 && place < size) {
      const auto at = static_cast<size_t>(place);
      return value.is_string() ? Value(text::to_utf8(characters.substr(at, 1)))
                               : value.list().items[at];
    }
  }
  if (key.is_string()) {
    if (value.is_callable()) {
      fail(fmt::format("attributes of functions are not supported: '{}'", key.string()));
    }
    if (auto method = find_method(value, key.string())) {
      return *method;
    }
  }
  return Undefined{fmt::format("{} object' has no element '{}", type_name(value), to_text(key))};
}

}  // namespace lockstep::jinja
