// Functions of Hydra's override grammar.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/core/scalar.h"
#include "config/hydra/override.h"

namespace lockstep::config {
namespace {

[[noreturn]] void fail_cast(const std::string& name, const Value& value) {
  throw Error(ErrorKind::kConfig, fmt::format("{}({}): invalid cast", name, to_text(value)));
}

/// Formats a number like Python's str(): 100000.0, 1e-05.
std::string python_float(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  const double magnitude = std::abs(value);
  if (magnitude >= 1e-4 && magnitude < 1e16 && std::floor(value) == value) {
    return fmt::format("{:.1f}", value);
  }
  return fmt::format("{}", value);
}

std::string python_text(const Value& value) {
  switch (scalar_type(value)) {
    case ScalarType::kNull:
      return "null";
    case ScalarType::kBool:
      return lower_case(value.text);
    case ScalarType::kInteger:
      return fmt::format("{}", to_integer(value.text).value_or(0));
    case ScalarType::kFloat:
      return python_float(to_double(value.text).value_or(0));
    case ScalarType::kString:
      break;
  }
  return value.text;
}

Value cast_integer(const Value& value) {
  const ScalarType type = scalar_type(value);
  if (type == ScalarType::kBool) {
    return Value::scalar(*to_bool(value.text) ? "1" : "0");
  }
  const auto number = to_double(value.text);
  if (!number || !std::isfinite(*number) || std::abs(*number) > 9e18 ||
      (type == ScalarType::kString && scalar_type(value.text) != ScalarType::kInteger)) {
    fail_cast("int", value);
  }
  if (const auto exact = to_integer(value.text)) {
    return Value::scalar(fmt::format("{}", *exact));
  }
  return Value::scalar(fmt::format("{}", static_cast<int64_t>(*number)));
}

Value cast_float(const Value& value) {
  if (scalar_type(value) == ScalarType::kBool) {
    return Value::scalar(*to_bool(value.text) ? "1.0" : "0.0");
  }
  const auto number = to_double(value.text);
  if (!number) {
    fail_cast("float", value);
  }
  return Value::scalar(python_float(*number));
}

Value cast_bool(const Value& value) {
  const ScalarType type = scalar_type(value);
  if (type == ScalarType::kInteger || type == ScalarType::kFloat) {
    return Value::scalar(to_double(value.text).value_or(0) != 0 ? "true" : "false");
  }
  const std::string lower = lower_case(value.text);
  if (lower != "true" && lower != "false") {
    fail_cast("bool", value);
  }
  return Value::scalar(lower);
}

Value cast(const std::string& name, Value value) {
  for (Value& item : value.items) {
    item = cast(name, std::move(item));
  }
  for (Entry& entry : value.entries) {
    entry.value = cast(name, std::move(entry.value));
  }
  if (value.is_list() || value.is_map()) {
    return value;
  }
  if (name == "str") {
    return Value::scalar(python_text(value), true);
  }
  if (value.is_null()) {
    fail_cast(name, value);
  }
  return name == "int"     ? cast_integer(value)
         : name == "float" ? cast_float(value)
                           : cast_bool(value);
}

/// Compares numbers by value and other scalars as text.
bool before(const Value& a, const Value& b) {
  const auto left = a.quoted ? std::nullopt : to_double(a.text);
  const auto right = b.quoted ? std::nullopt : to_double(b.text);
  return left && right ? *left < *right : a.text < b.text;
}

[[noreturn]] void refuse_sweep(const std::string& name) {
  throw Error(
      ErrorKind::kConfig,
      fmt::format("{}(...) is a sweep, which is not supported", name),
      "give one value, and start the program once per value in a shell loop");
}

Value sort(const std::vector<std::string>& names, std::vector<Value> arguments) {
  bool reverse = false;
  std::vector<Value> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (names[i] == "reverse") {
      reverse = to_bool(arguments[i].text).value_or(false);
    } else {
      rest.push_back(std::move(arguments[i]));
    }
  }
  if (rest.size() != 1 || !rest[0].is_list()) {
    refuse_sweep("sort");
  }
  auto& items = rest[0].items;
  if (!std::all_of(
          items.begin(), items.end(), [](const Value& item) { return item.is_scalar(); })) {
    throw Error(ErrorKind::kConfig, "sort([...]) sorts only strings and numbers");
  }
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return reverse ? before(b, a) : before(a, b);
  });
  return std::move(rest[0]);
}

}  // namespace

Value call_override_function(
    const std::string& name, const std::vector<std::string>& names, std::vector<Value> arguments) {
  const std::vector<std::string> casts = {"int", "float", "str", "bool"};
  if (std::find(casts.begin(), casts.end(), name) != casts.end()) {
    if (arguments.size() != 1) {
      refuse_sweep(name);
    }
    if (!names[0].empty() && names[0] != "value") {
      throw Error(ErrorKind::kConfig, fmt::format("{}(...) has no argument '{}'", name, names[0]));
    }
    return cast(name, std::move(arguments[0]));
  }
  if (name == "sort") {
    return sort(names, std::move(arguments));
  }
  if (name == "shuffle") {
    throw Error(
        ErrorKind::kConfig, "shuffle(...) is not supported: its order would differ between runs");
  }
  for (const char* sweep : {"choice", "range", "interval", "glob", "tag"}) {
    if (name == sweep) {
      refuse_sweep(name);
    }
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("unknown function {}(...).{}", name, did_you_mean(name, casts)),
      "quote the value if it is a string; the functions are int, float, str, bool and sort");
}

}  // namespace lockstep::config
