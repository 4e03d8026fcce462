// Implements Jinja's tests (`x is string`) by name.
#include <map>

#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/python_characters.h"

namespace lockstep::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&);

const Value& other(const Arguments& arguments) {
  if (arguments.values.empty()) {
    fail("the test needs a value to compare with");
  }
  return arguments.values.front();
}

template <bool kWanted>
bool is_word(const Value& value, const Arguments&) {
  return value.is_bool() && is_true(value) == kWanted;
}

bool is_mapping(const Value& value) {
  return value.is_dict() && !value.dict().is_namespace;
}

/// Returns true for values with a length and items, as in Python.
bool is_sequence(const Value& value, const Arguments&) {
  return value.is_string() || is_mapping(value) || value.is_undefined() ||
         (value.is_list() && value.list().has_places());
}

bool is_iterable(const Value& value, const Arguments&) {
  return value.is_string() || value.is_list() || value.is_undefined() || is_mapping(value) ||
         (value.is_dict() && value.dict().is_loop);
}

bool has_remainder(const Value& value, const Value& by, int64_t wanted) {
  return equal(arithmetic("%", value, by), wanted);
}

/// Implements Python's `is`. Throws Error if the result depends on how Python stores the values.
bool is_same(const Value& a, const Value& b) {
  constexpr int64_t kSmallest = -5, kLargest = 256;  // range of Python's cached integers
  if (a.is_list() && b.is_list()) {
    return &a.list() == &b.list();
  }
  if (a.is_dict() && b.is_dict()) {
    return &a.dict() == &b.dict();
  }
  if (type_name(a) != type_name(b) || !equal(a, b)) {
    return false;
  }
  if (a.is_none() || a.is_bool() ||
      (a.is_integer() && a.integer() >= kSmallest && a.integer() <= kLargest)) {
    return true;
  }
  fail(fmt::format(
      "the identity of two equal values of type {} depends on Python: compare with ==",
      type_name(a)));
}

/// Test with its maximum number of arguments.
struct KnownTest {
  Test run;
  size_t most = 0;
};

const std::map<std::string, KnownTest>& tests() {
  using V = const Value&;
  using A = const Arguments&;
  static const KnownTest same{[](V v, A a) { return equal(v, other(a)); }, 1};
  static const KnownTest differs{[](V v, A a) { return !equal(v, other(a)); }, 1};
  static const KnownTest before{[](V v, A a) { return compare("<", v, other(a)); }, 1};
  static const KnownTest up_to{[](V v, A a) { return compare("<=", v, other(a)); }, 1};
  static const KnownTest after{[](V v, A a) { return compare(">", v, other(a)); }, 1};
  static const KnownTest from{[](V v, A a) { return compare(">=", v, other(a)); }, 1};
  static const std::map<std::string, KnownTest> all{
      {"defined", {[](V v, A) { return !v.is_undefined(); }}},
      {"undefined", {[](V v, A) { return v.is_undefined(); }}},
      {"none", {[](V v, A) { return v.is_none(); }}},
      {"string", {[](V v, A) { return v.is_string(); }}},
      {"number", {[](V v, A) { return v.is_number(); }}},
      {"integer", {[](V v, A) { return v.is_integer() && !v.is_bool(); }}},
      {"float", {[](V v, A) { return v.is_float(); }}},
      {"boolean", {[](V v, A) { return v.is_bool(); }}},
      {"true", {is_word<true>}},
      {"false", {is_word<false>}},
      {"mapping", {[](V v, A) { return is_mapping(v); }}},
      {"sequence", {is_sequence}},
      {"iterable", {is_iterable}},
      {"callable", {[](V v, A) { return v.is_callable() || v.is_undefined(); }}},
      {"odd", {[](V v, A) { return has_remainder(v, int64_t{2}, 1); }}},
      {"even", {[](V v, A) { return has_remainder(v, int64_t{2}, 0); }}},
      {"divisibleby", {[](V v, A a) { return has_remainder(v, other(a), 0); }, 1}},
      {"in", {[](V v, A a) { return compare("in", v, other(a)); }, 1}},
      {"sameas", {[](V v, A a) { return is_same(v, other(a)); }, 1}},
      {"escaped", {[](V v, A) { return v.is_marked(); }}},
      {"eq", same},
      {"==", same},
      {"equalto", same},
      {"ne", differs},
      {"!=", differs},
      {"lt", before},
      {"<", before},
      {"lessthan", before},
      {"le", up_to},
      {"<=", up_to},
      {"gt", after},
      {">", after},
      {"greaterthan", after},
      {"ge", from},
      {">=", from},
      {"lower", {[](V v, A) { return is_all_lower_case(to_text(v)); }}},
      {"upper", {[](V v, A) { return is_all_upper_case(to_text(v)); }}},
  };
  return all;
}

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) {
    fail(fmt::format("unknown test '{}'", name));
  }
  arguments.check(name, found->second.most, {});
  return found->second.run(value, arguments);
}

}  // namespace lockstep::jinja
