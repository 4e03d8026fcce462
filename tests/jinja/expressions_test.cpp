// Results of expressions and statements in Jinja (tests/parity compares hundreds more), and errors
// for unsupported constructs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jinja/template.h"

namespace lockstep::jinja {
namespace expressions_test {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string render(std::string_view source) {
  static const Json variables = Json::parse(R"({
    "name": "Ada", "n": 7, "x": 2.5, "none_": null, "yes": true, "words": ["b", "A", "c"],
    "user": {"role": "user", "z": 1},
    "rows": [{"role": "user", "n": 1}, {"role": "tool", "n": 2}, {"role": "user", "n": 3}]})");
  return Template(source, "a test").render(variables).text;
}

std::string error_of(std::string_view source) {
  try {
    return "no error, but: " + render(source);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.message();
  }
}

struct Case {
  const char* source;
  const char* text;
};

void expect(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(render(c.source), c.text) << c.source;
  }
}

TEST(Expressions, NumbersAreAsPythonHasThem) {
  expect({
      {R"({{ 1 // 0.1 ~ ' ' ~ 1 % 0.1 }})", R"(9.0 0.09999999999999995)"},
      {R"({{ -7.5 // 2 ~ ' ' ~ -7.5 % 2 ~ ' ' ~ 7.5 % -2 }})", R"(-4.0 0.5 -0.5)"},
      {R"({{ (-1) ** 1000000000000001 }})", R"(-1)"},
      {R"({{ 2 ** -1 ~ ' ' ~ 4 ** 0.5 }})", R"(0.5 2.0)"},
      {R"({{ 0x10 + 0b11 + 0o17 }})", R"(34)"},
      {R"({{ 1_000 ~ ' ' ~ 1e16 ~ ' ' ~ 1e-5 ~ ' ' ~ 1.5e-3 }})", R"(1000 1e+16 1e-05 0.0015)"},
      {R"({{ '0x1F' | int ~ ' ' ~ '0x1f' | int(0, 16) ~ ' ' ~ '12_3' | int ~ ' ' ~ ' 4 ' | int }})",
       R"(0 31 123 4)"},
      {R"({{ '1_' | int ~ ' ' ~ 'inf' | int ~ ' ' ~ '1e3' | int ~ ' ' ~ 'z' | int(none) }})",
       R"(0 0 1000 None)"},
      {R"({{ ' 1.5 ' | float ~ ' ' ~ '0x10' | float ~ ' ' ~ '1_0.5' | float ~ ' ' ~ 'nan(1)' | float }})",
       R"(1.5 0.0 10.5 0.0)"},
      {R"({{ 42 | round ~ ' ' ~ 0.15 | round(1) ~ ' ' ~ 2.675 | round(2) ~ ' ' ~ 25 | round(-1) }})",
       R"(42 0.1 2.67 20)"},
      {R"({{ -2.15 | round(1, 'floor') ~ ' ' ~ 2.123 | round(2, 'ceil') ~ ' ' ~ true | round }})",
       R"(-2.2 2.13 1)"},
      {R"({{ 3.5 is odd ~ ' ' ~ 3.0 is odd ~ ' ' ~ 4 is divisibleby(0.5) }})",
       R"(False True True)"},
      {R"({{ [none, 1] < [none, 2] }})", R"(True)"},
      {R"({{ 1 is sameas 1.0 ~ ' ' ~ 1 is sameas true ~ ' ' ~ [1] is sameas [1] ~ ' ' ~ words is sameas words }})",
       R"(False False False True)"},
  });
}

TEST(Expressions, TextsKnowAllOfUnicode) {
  expect({
      {R"({{ '\u00a0a\u2003'.strip() ~ '|' ~ ('\x85 a\x1f' | trim) ~ '|' }})", R"(a|a|)"},
      {R"({{ 'a\u00a0b\u2003c'.split() }})", R"(['a', 'b', 'c'])"},
      {R"({{ ' a  b c '.split(none, 1) ~ ' a  b c '.rsplit(none, 1) }})",
       R"(['a', 'b c '][' a  b', 'c'])"},
      {R"({{ 'a\x0bb\x0cc\x85d\u2028e'.splitlines() ~ 'a\r\nb\n'.splitlines(true) }})",
       R"(['a', 'b', 'c', 'd', 'e']['a\r\n', 'b\n'])"},
      {R"({{ 'ÿß'.upper() ~ 'ǆ'.upper() ~ 'ά'.upper() ~ 'ა'.upper() ~ 'ა'.capitalize() }})",
       R"(ŸSSǄΆᲐა)"},
      {R"({{ 'ΑΣ Σ ΑΣ.'.lower() ~ 'İẞ'.lower() }})", R"(ας σ ας.i̇ß)"},
      {R"({{ "it's a_b-c 1a".title() }})", R"(It'S A_B-C 1A)"},
      {R"({{ "it's a-b (c" | title }})", R"(It's A-B (C)"},
      {R"({{ 'ßa'.title() ~ 'éA'.capitalize() }})", R"(SsaÉa)"},
      {R"({{ "it's é_1 a-b" | wordcount }})", R"(5)"},
      {R"({{ 'abc'.replace('', '-') ~ 'abc'.replace('', '-', 2) ~ ''.replace('', 'x') }})",
       R"(-a-b-c--a-bcx)"},
      {R"({{ 'abcb'.find('b', 2) ~ 'abcb'.find('b', 2, 3) ~ 'abc'.find('', 4) ~ 'éb'.index('b') ~ 'abcb'.rindex('b') }})",
       R"(3-1-113)"},
      {R"({{ 'abc'.startswith('b', 1) ~ 'abc'.endswith('b', 0, 2) ~ 'abc'.startswith('', 4) }})",
       R"(TrueTrueFalse)"},
      {R"({{ 'banana'.count('a', 2) ~ 'banana'.count('') ~ 'banana'.count('a', 2, 4) }})",
       R"(271)"},
      {R"({{ 'a=b=c'.rpartition('=') ~ 'a'.rpartition('=') }})",
       R"(('a=b', '=', 'c')('', '', 'a'))"},
      {R"({{ 'é'.isalpha() ~ '٣'.isdigit() ~ '日本'.isalnum() ~ '\u00a0'.isspace() ~ 'ªb'.islower() }})",
       R"(TrueTrueTrueTrueTrue)"},
      {R"({{ ['\u200b\u00ad\u00a0', 'é', '\U000e0001', '\x7f'] }})",
       R"(['\u200b\xad\xa0', 'é', '\U000e0001', '\x7f'])"},
      {R"({{ '\101\0'.isascii() }})", R"(True)"},
      {R"({{ 'a\nb\r\n\nc' | indent(1) ~ '|' ~ ('a\n' | indent(2, true, true)) ~ '|' }})",
       "a\n b\n\n c|  a\n  |"},
      {R"({{ 'abc'['a':] ~ 'abc'[none:2] }})", R"(ab)"},
  });
}

TEST(Expressions, ListsAreOfTheirKind) {
  expect({
      {R"({{ range(3) == [0, 1, 2] }})", R"(False)"},
      {R"({{ range(5)[1:4] | list }})", R"([1, 2, 3])"},
      {R"({{ user.items()[0] is defined }})", R"(False)"},
      {R"({{ user.keys() | join(',') ~ (('z', 1) in user.items()) }})", R"(role,zTrue)"},
      {R"({{ [] | select is defined and 'y' if [] | select else 'n' }})", R"(y)"},
      {R"({{ 'y' if words | map('upper') else 'n' }})", R"(y)"},
      {R"({{ (words | map('upper'))[0] is defined }})", R"(False)"},
      {R"({{ words | map('upper') is sequence }})", R"(False)"},
      {R"({{ words | map('upper') | reverse | list }})", R"(['C', 'A', 'B'])"},
      {R"({{ words.index('A') ~ words.count('c') ~ words.copy() }})", R"(11['b', 'A', 'c'])"},
      {R"({{ rows | sort(attribute='role,n', reverse=true) | map(attribute='n') | list }})",
       R"([3, 1, 2])"},
      {R"({{ rows | max(attribute='n') | tojson }})", R"({"role": "user", "n": 3})"},
      {R"({{ ['b', 'C'] | max(case_sensitive=true) ~ ['b', 'C'] | max }})", R"(bC)"},
      {R"({{ {1: 'i', 1.0: 'f', true: 'b'} }})", R"({1: 'b'})"},
      {R"({{ dict([('a', 1), ('b', 2)]) ~ dict({'b': 2}, a=1) }})",
       R"({'a': 1, 'b': 2}{'b': 2, 'a': 1})"},
      {R"({{ [[1, 2], [3]] | map(attribute=0) | list }})", R"([1, 3])"},
      {R"({{ [1, 2, 3] | batch(2, 0) | list }})", R"([[1, 2], [3, 0]])"},
  });
}

TEST(Expressions, JsonIsThatOfPython) {
  expect({
      {R"({{ 'é\U0001F642\x7f' | tojson(ensure_ascii=true) }})", R"("\u00e9\ud83d\ude42\u007f")"},
      {R"({{ ['é'] | tojson(false, 1) }})", "[\n \"é\"\n]"},
      {R"({{ [1] | tojson(2) }})", R"([1])"},
      {R"({{ [1, {'a': 2}] | tojson(separators=(',', ':')) }})", R"([1,{"a":2}])"},
      {R"({{ [1, [2]] | tojson(indent='--') }})", "[\n--1,\n--[\n----2\n--]\n]"},
      {R"({{ [1, {'a': 2}] | tojson(indent=1, separators=(';', '=')) }})",
       "[\n 1;\n {\n  \"a\"=2\n }\n]"},
      {R"({{ [1, [2]] | tojson(indent=-1) }})", "[\n1,\n[\n2\n]\n]"},
      {R"({{ {none: 3, true: 4, 2.5: 5} | tojson }})", R"({"null": 3, "true": 4, "2.5": 5})"},
      {R"({{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }})", R"({"a": 2, "b": 1})"},
  });
}

TEST(Expressions, StatementsAreThoseOfJinja) {
  expect({
      {R"({% for i in words %}{% break %}x{% else %}e{% endfor %})", R"(e)"},
      {R"({% for i in words %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %})",
       R"(bA)"},
      {R"({% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }})", R"(155)"},
      {R"({% set t %}a{% set u = 1 %}{% endset %}[{{ u }}{{ t }}])", R"([a])"},
      {R"({% for i in words %}{{ loop }}{% endfor %})",
       R"(<LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>)"},
      {R"({% set ns = namespace(a=1) %}{{ ns | attr('a') }}{{ ns is iterable }})", R"(1False)"},
      {"{% raw %}\n a{% endraw +%}\n b", "\n a\n b"},
      {R"({% raw %}x{%+ endraw %}y)", R"(xy)"},
      {"\u00a0{%- if yes -%}\u00a0b{% endif %}", R"(b)"},
      {"a\n\u00a0{% if yes %}b{% endif %}", "a\nb"},
      {R"({% for m in words | map('upper') %}{{ m }}{{ loop.length }}{% endfor %})", R"(B3A3C3)"},
      {R"({% set g = words | select %}{% if g %}{% for w in g %}{{ w }}{% endfor %}{% endif %})",
       R"(bAc)"},
      {R"({{ ('a' | safe) + 'b' }}{{ (['<'] | tojson | safe) ~ '<' }}{{ '<' | e }})",
       R"(ab["<"]<&lt;)"},
      {R"({{ words[1] }}{{ [[3, 1]].0.1 }})", R"(A1)"},
      {R"({% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }})", R"(1112)"},
  });
}

/// These render in Jinja. Lockstep throws Error instead of rendering different text.
TEST(Expressions, WhatIsNotSupportedIsRefused) {
  const Case cases[] = {
      {"{{ 10 ** 19 }}", "10 ** 19 is too large"},
      {"{{ (-8) ** 0.5 }}", "not a real number"},
      {"{{ '99999999999999999999' | int }}", "too large for a 64-bit integer"},
      {"{{ 1e30 | int }}", "too large for a 64-bit integer"},
      {"{{ 'ﬁ'.upper() }}", "the upper case of 'ﬁ' (U+FB01) is not supported"},
      {"{{ '²'.isdigit() }}", "U+00B2"},
      {"{{ '%s' % name }}", "formatting with % is not supported: join the strings with ~"},
      {"{{ 'a'.zfill(3) }}", "'str object' has no attribute 'zfill', so it cannot be called"},
      {"{{ range(3) }}", "a range cannot be printed: add | list after it"},
      {"{{ user.keys() }}", "a view of a dict cannot be printed"},
      {"{{ words | map('upper') }}", "a generator cannot be printed"},
      {"{{ name.upper }}", "a function cannot be printed: call it, with ()"},
      {"{{ (1).real }}", "attributes of numbers are not supported: 'real'"},
      {"{% set g = words | map('upper') %}{{ g | join }}{{ g | join }}",
       "iterated a second time, when Jinja finds it empty: add | list after the filter"},
      {"{{ ('<' | safe) + '<' }}", "Jinja would escape it: remove | safe"},
      {"{{ ('a' | safe).upper() }}", "does not support the method upper: remove | safe"},
      {"{{ 'a' is sameas 'a' }}", "depends on Python: compare with =="},
      {"{% macro m() %}{{ kwargs }}{% endmacro %}{{ m() }}", "name the macro's arguments"},
      {"{{ joiner(',') }}", "'joiner' is not supported"},
      {"{{ '\\N{BULLET}' }}", "is not a supported escape"},
      {"{% for i in words %}{% set t %}{% break %}{% endset %}{% endfor %}", "is not in a loop"},
  };
  for (const auto& [source, text] : cases) {
    EXPECT_THAT(error_of(source), HasSubstr(text)) << source;
  }
}

/// These are errors in Jinja and must be errors here.
TEST(Expressions, WhatJinjaRefusesIsRefused) {
  const Case cases[] = {
      {"{% break %}a", "{% break %} is not in a loop"},
      {"{% for i in words %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
       "{% continue %} is not in a loop"},
      {"{% for loop in words %}{% endfor %}", "cannot assign to 'loop'"},
      {"{% set none = 1 %}", "cannot assign to 'none'"},
      {"{% for i in words %}{% set loop.index = 1 %}{% endfor %}",
       "cannot set an attribute of 'loop'"},
      {"{% macro m(a, a) %}{% endmacro %}", "two parameters named a"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "parameter b needs a default"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "got multiple values for its argument a"},
      {"{{ name.split(sep=',', sep=';') }}", "a unique named argument"},
      {"{{ name.split(sep=',', 1) }}", "a unique named argument"},
      {"{{ 'a'.upper(1) }}", "upper takes 0 arguments, but 1 were given"},
      {"{{ 'a' | upper(1) }}", "upper takes 0 arguments"},
      {"{{ 1 | tojson(nothing=1) }}", "tojson has no argument nothing"},
      {"{{ 1 is in(1, 2) }}", "in takes 1 arguments, but 2 were given"},
      {"{{ n is odd is true }}", "parentheses around the first"},
      {"{{ {[1]: 2} }}", "[1] is list, which is not a valid key of a dict"},
      {"{{ [1] in user }}", "which is not a valid key of a dict"},
      {"{{ user | dictsort(by='x') }}", "must be 'key' or 'value'"},
      {"{{ 2.5 | round(1, 'x') }}", "must be common, ceil or floor"},
      {"{{ words | select | length }}", "has no length: add | list after the filter"},
      {"{{ words | select | last }}", "has no last item"},
      {"{{ range(3) + [1] }}", "range and list do not support the operator +"},
      {"{{ range(3) | tojson }}", "tojson does not support range"},
      {"{{ words | map }}", "map needs a filter"},
      {"{{ missing | int }}", "'missing' is undefined"},
      {"{{ missing | reverse }}", "'missing' is undefined"},
      {"{{ 0 ** -1 }}", "0 to a negative power"},
      {"{{ 2.0 ** 10000 }}", "is too large"},
      {"{{ 007 }}", "leading 0"},
      {"{{ 0x }}", "0x is not a number"},
      {"{{ 1_ }}", "got '_'"},
      {"{{ '\\x4' }}", "is not a supported escape"},
      {"{{ '\\U00110000' }}", "is not a supported escape"},
      {"{{ a→b }}", "unexpected U+2192 in a tag"},
      {"{{ n +}}", "expected a value"},
      {"{{ 'a'.partition('') }}", "an empty separator"},
      {"{{ [1] < (2,) }}", "list and tuple cannot be ordered"},
  };
  for (const auto& [source, text] : cases) {
    EXPECT_THAT(error_of(source), HasSubstr(text)) << source;
  }
}

TEST(Expressions, TakeVariablesOfAnyOrigin) {
  const auto rendered = [](std::string_view source, const Json& value) {
    return Template(source, "a test").render({{"v", value}}).text;
  };
  // Invalid UTF-8, truncated within a character.
  const std::string broken = "a\xff\xe4\xb8";
  EXPECT_EQ(rendered("{{ v | upper }}{{ v | length }}", broken), "A\uFFFD\uFFFD3");
  EXPECT_EQ(
      rendered("{{ v }}", Json::object({{broken, broken}})), "{'a\uFFFD\uFFFD': 'a\uFFFD\uFFFD'}");
  EXPECT_EQ(rendered("{{ v }}", uint64_t{9223372036854775807U}), "9223372036854775807");
  EXPECT_EQ(rendered("{{ v }}", INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(rendered("{{ v }} {{ v | tojson }}", 1e100), "1e+100 1e+100");
  try {
    rendered("{{ v }}", uint64_t{9223372036854775808U});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("9223372036854775808 is too large for a template"));
  }
}

TEST(Expressions, AreBounded) {
  EXPECT_THAT(error_of("{{ [1] | batch(999999999, 0) | list }}"), HasSubstr("100000 items"));
  // A range that ends at the largest 64-bit integer.
  EXPECT_EQ(
      render("{% set top = 2 ** 62 + (2 ** 62 - 1) %}{{ range(top - 7, top, 5) | list }}"),
      "[9223372036854775800, 9223372036854775805]");
}

}  // namespace expressions_test
}  // namespace lockstep::jinja
