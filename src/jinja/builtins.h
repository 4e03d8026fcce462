// Filters, tests, methods and functions of templates: internal to jinja.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "jinja/value.h"

namespace lockstep::jinja {

/// The most items that a list made by a template may have, and bytes of a text.
inline constexpr int64_t kMostItems = 100'000, kMostBytes = int64_t{1} << 26;

/// Error (kData) of a text that is larger.
void check_size(const std::string& text);

/// `value | name(arguments)`. Error (kData) where there is no such filter.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
/// `value is name(arguments)`.
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// `value.name`, where that is a method of Python's strings and dicts that changes nothing.
std::optional<Value> find_method(const Value& value, const std::string& name);
/// value.name and value[key]: undefined where there is none. Error (kData) of an undefined value.
Value attribute_of(const Value& value, const std::string& name);
Value item_of(const Value& value, const Value& key);
/// + - * / // % ** ~
Value arithmetic(const std::string& op, const Value& a, const Value& b);
/// == != < <= > >= in, not in
bool compare(const std::string& op, const Value& a, const Value& b);
/// value[from:to:step]; undefined or none: left out.
Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step);
/// range, namespace, dict, raise_exception, strftime_now; undefined: there is none.
Value global_function(const std::string& name);

/// str.replace(): `most` below 0: all of them.
std::string replaced(
    const std::string& text, const std::string& from, const std::string& to, int64_t most);

}  // namespace lockstep::jinja
