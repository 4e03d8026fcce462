// Built-in filters, tests, methods and functions of templates. Internal to jinja.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "jinja/value.h"

namespace lockstep::jinja {

/// Maximum items of a list and bytes of a string created by a template.
inline constexpr int64_t kMostItems = 100'000, kMostBytes = int64_t{1} << 26;

/// Throws Error (data) if the string exceeds kMostBytes. Every value is checked when it is created;
/// functions that append repeatedly check in between.
void check_size(const std::string& text);

/// Evaluates `value | name(arguments)`. Throws Error (data) if the filter is unknown.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
/// Evaluates `value is name(arguments)`.
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// Returns `value.name` if it is a non-mutating method of Python's str, list or dict.
std::optional<Value> find_method(const Value& value, const std::string& name);
/// Evaluate value.name and value[key]. Return undefined if the attribute or item does not exist.
/// Throw Error (data) if `value` is undefined.
Value attribute_of(const Value& value, const std::string& name);
Value item_of(const Value& value, const Value& key);
/// Evaluates + - * / // % ** ~.
Value arithmetic(const std::string& op, const Value& a, const Value& b);
/// Evaluates == != < <= > >=, in and not in.
bool compare(const std::string& op, const Value& a, const Value& b);
/// Evaluates value[from:to:step]. An omitted bound is undefined or none.
Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step);
/// Returns the function range, namespace, dict, raise_exception or strftime_now; undefined for
/// other names.
Value global_function(const std::string& name);

/// Implements str.replace(). Replaces at most `most` occurrences; all of them if `most` is
/// negative.
std::string replaced(
    const std::string& text, const std::string& from, const std::string& to, int64_t most);

}  // namespace lockstep::jinja
