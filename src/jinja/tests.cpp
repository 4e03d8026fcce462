// Tests (`x is string`), by Jinja's names.
#include <map>

#include "base/format.h"
#include "jinja/builtins.h"

namespace lockstep::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&);

const Value& other(const Arguments& arguments) {
  if (arguments.values.empty()) {
    fail("a test needs what to compare to");
  }
  return arguments.values.front();
}

template <bool kWanted>
bool is_word(const Value& value, const Arguments&) {
  return value.is_bool() && is_true(value) == kWanted;
}

bool is_sequence(const Value& value, const Arguments&) {
  return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
}

int64_t remainder_of(const Value& value, int64_t by) {
  return arithmetic("%", value, by).integer();
}

bool is_in_case(const Value& value, bool upper) {
  const std::string text = to_text(value);
  return text == in_case(text, upper) && text != in_case(text, !upper);
}

const std::map<std::string, Test>& tests() {
  using V = const Value&;
  using A = const Arguments&;
  static const auto same = [](V v, A a) { return equal(v, other(a)); };
  static const auto differs = [](V v, A a) { return !equal(v, other(a)); };
  static const auto before = [](V v, A a) { return compare("<", v, other(a)); };
  static const auto up_to = [](V v, A a) { return compare("<=", v, other(a)); };
  static const auto after = [](V v, A a) { return compare(">", v, other(a)); };
  static const auto from = [](V v, A a) { return compare(">=", v, other(a)); };
  static const std::map<std::string, Test> all{
      {"defined", [](V v, A) { return !v.is_undefined(); }},
      {"undefined", [](V v, A) { return v.is_undefined(); }},
      {"none", [](V v, A) { return v.is_none(); }},
      {"string", [](V v, A) { return v.is_string(); }},
      {"number", [](V v, A) { return v.is_number(); }},
      {"integer", [](V v, A) { return v.is_integer() && !v.is_bool(); }},
      {"float", [](V v, A) { return v.is_float(); }},
      {"boolean", [](V v, A) { return v.is_bool(); }},
      {"true", is_word<true>},
      {"false", is_word<false>},
      {"mapping", [](V v, A) { return v.is_dict(); }},
      {"sequence", is_sequence},
      {"iterable", is_sequence},
      {"callable", [](V v, A) { return v.is_callable(); }},
      {"odd", [](V v, A) { return remainder_of(v, 2) == 1; }},
      {"even", [](V v, A) { return remainder_of(v, 2) == 0; }},
      {"divisibleby", [](V v, A a) { return remainder_of(v, other(a).integer()) == 0; }},
      {"in", [](V v, A a) { return contains(other(a), v); }},
      {"sameas", same},
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
      {"lower", [](V v, A) { return is_in_case(v, false); }},
      {"upper", [](V v, A) { return is_in_case(v, true); }},
  };
  return all;
}

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) {
    fail(fmt::format("there is no test '{}'", name));
  }
  return found->second(value, arguments);
}

}  // namespace lockstep::jinja
