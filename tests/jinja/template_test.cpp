// Tests of templates: statements, filters, errors and limits.
#include "jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::jinja {
namespace template_test {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string render(std::string_view source, const Json& variables = Json::object()) {
  return Template(source, "a test").render(variables).text;
}

std::string error_of(std::string_view source, const Json& variables = Json::object()) {
  try {
    render(source, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.message();
  }
  ADD_FAILURE() << source;
  return "";
}

/// Template and the text that Jinja renders with transformers' options.
struct Case {
  const char* source;
  const char* text;
};

void expect(std::initializer_list<Case> cases) {
  const Json variables = Json::parse(R"({
    "name": "Ada", "n": 7, "x": 2.5, "none_": null, "yes": true, "empty": "", "words": ["b", "A", "c"],
    "user": {"role": "user", "content": "Hi é", "tags": ["t1", "t2"], "z": 1, "a": 2},
    "rows": [{"role": "user", "n": 1}, {"role": "tool", "n": 2}, {"role": "user", "n": 3}]})");
  for (const Case& c : cases) {
    EXPECT_EQ(render(c.source, variables), c.text) << c.source;
  }
}

TEST(Template, WhiteSpaceIsCutAsTransformersAsks) {
  expect({
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"{% if yes %}\nb\n{% endif %}\nc", "b\nc"},
      {"  {% if yes %}  b{% endif %}", "  b"},
      {"x\n  {% if yes %}\n  b\n  {% endif %}\n", "x\n  b\n"},
      {"x  {%- if yes -%}  b  {%- endif -%}  y", "xby"},
      {"x\n  {%+ if yes %}b{% endif +%}\ny", "x\n  b\ny"},
      {"  {{ name }}\n  {{- n -}}\n  .", "  Ada7."},
      {"a{# note #}\nb\n  {#- cut -#}\n c",
       "ab"
       "c"},
      {"{% raw %}{{ not }}{% endraw %}!", "{{ not }}!"},
      {"a\r\nb\r\n", "a\nb"},
  });
}

TEST(Template, ExpressionsAndTheirOrder) {
  expect({
      {"{{ 1 + 2 * 3 ** 2 }}", "19"},
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 4 / 2 }}",
       "3 -4 1 2 3.5 2.0"},
      {"{{ 'a' 'b' ~ 1 * 2 }}", "ab2"},
      {"{{ 'a' + 'b' * 2 }}{{ [1] + [2, 'x'] }}{{ (1,) }}", "abb[1, 2, 'x'](1,)"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ not 1 == 2 }}", "True False True"},
      {"{{ 'b' in words and 'd' not in words }} {{ 'role' in user }} {{ 'd' in name }}",
       "True True True"},
      {"{{ none_ or 'x' }} {{ empty or n }} {{ name and n }}", "x 7 7"},
      {"{{ 'y' if missing else 'n' }}{{ 'y' if missing }}", "n"},
      {"{{ user.role }} {{ user['content'] }} {{ user.missing }}|{{ none_.x }}", "user Hi é |"},
      {"{{ words[0] }}{{ words[-1] }}{{ words[9] }}{{ words.1 }}", "bcA"},
      {"{{ words[::-1] }}{{ words[1:] }}{{ 'héllo'[1:3] }}{{ 'abc'[-1] }}",
       "['c', 'A', 'b']['A', 'c']élc"},
      {"{{ none_ }} {{ yes }} {{ x }} {{ 1.0 }} {{ missing }}", "None True 2.5 1.0 "},
      {"{{ {'a': 1, 'b': [none, true, \"it's\"]} }}", "{'a': 1, 'b': [None, True, \"it's\"]}"},
      {"{{ -n|abs }} {{ n is odd and x is not integer }}", "7 True"},
      {"{{ 'a\\n\\t\\'\\u00e9' }}", "a\n\t'é"},
      {"{{ True == 1 }}{{ '1' == 1 }}{{ [1, 2] == [1, 2] }}", "TrueFalseTrue"},
  });
}

TEST(Template, StatementsAndScopes) {
  expect({
      {"{% for w in words %}{{ loop.index }}{{ w }}{% if not loop.last %},{% endif %}{% endfor %}",
       "1b,2A,3c"},
      {"{% for r in rows if r.role == 'user' %}{{ r.n }}/{{ loop.length }} {% endfor %}",
       "1/2 3/2 "},
      {"{% for k, v in user.items() %}{{ k }};{% endfor %}", "role;content;tags;z;a;"},
      {"{% for k in none_ or [] %}x{% else %}none{% endfor %}", "none"},
      {"{% set s = 1 %}{% for w in words %}{% set s = s + 1 %}{{ s }}{% endfor %}{{ s }}", "2221"},
      {"{% set s = 1 %}{% if yes %}{% set s = 2 %}{% endif %}{{ s }}", "2"},
      {"{% set ns = namespace(i=0) %}{% for w in words %}{% set ns.i = ns.i + loop.index0 %}{% "
       "endfor %}{{ ns.i }}",
       "3"},
      {"{% set a, b = 1, 'x' %}{{ a }}{{ b }}", "1x"},
      {"{% set t %}<{{ name }}>{% endset %}{{ t | lower }}", "<ada>"},
      {"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break "
       "%}{% endif %}{{ i }}{% endfor %}",
       "02"},
      {"{% macro m(a, b='z') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{% set c = 1 %}{{ m(1) }}{{ "
       "m(b=2, a=3) }}",
       "[1z1][321]"},
      {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
       "3210"},
      {"{% with a=1 %}{{ a }}{% endwith %}{{ a }}", "1"},
      {"{% filter upper %}{{ name }}b{% endfilter %}", "ADAB"},
      {"{% if n > 9 %}a{% elif n > 5 %}b{% else %}c{% endif %}", "b"},
      {"{% for w in words %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('-', '+') }}{% "
       "endfor %}",
       "A-bc+A-"},
  });
}

TEST(Template, FiltersTestsAndMethods) {
  expect({
      {"{{ user | tojson }}",
       "{\"role\": \"user\", \"content\": \"Hi é\", \"tags\": [\"t1\", \"t2\"], \"z\": 1, \"a\": "
       "2}"},
      {"{{ [1, {'a': []}] | tojson(indent=2) }}", "[\n  1,\n  {\n    \"a\": []\n  }\n]"},
      {"{{ '<é\"\\n>' | tojson }}", "\"<é\\\"\\n>\""},
      {"{{ '  a b ' | trim }}|{{ '  a '.rstrip() }}|{{ 'xax'.strip('x') }}", "a b|  a|a"},
      {"{{ 'a,b,c'.split(',')[1] }}{{ ' a  b '.split() }}{{ 'a-b-c'.rsplit('-', 1) }}",
       "b['a', 'b']['a-b', 'c']"},
      {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'aXa'.replace('a', 'b', 1) "
       "}}",
       "TrueTruebXa"},
      {"{{ name.upper() }}{{ 'ÀB'.lower() }}{{ 'ada byron' | title }}{{ 'aDA' | capitalize }}",
       "ADAàbAda ByronAda"},
      {"{{ rows | selectattr('role', 'equalto', 'user') | map(attribute='n') | list }}", "[1, 3]"},
      {"{{ rows | rejectattr('role', 'in', ['user']) | map(attribute='n') | join(',') }}", "2"},
      {"{{ words | map('upper') | join }}{{ words | sort | join }}{{ words | length }}", "BACAbc3"},
      {"{{ words | first }}{{ words | last }}{{ 'é1' | length }}{{ user | length }}", "bc25"},
      {"{{ missing | default('d') }}{{ empty | default('d') }}{{ empty | default('d', true) }}",
       "dd"},
      {"{{ user | dictsort | first }}{{ user | items | list | length }}", "('a', 2)5"},
      {"{{ '12' | int + 1 }}{{ 'x' | int }}{{ '1.5' | float }}{{ n | string + '!' }}", "1301.57!"},
      {"{{ 'a\\nb\\n\\nc' | indent(2) }}", "a\n  b\n\n  c"},
      {"{{ [3, 1, 3] | unique | list }}{{ [3, 1] | sum }}{{ [3, 1] | min }}{{ 2.5 | round }}",
       "[3, 1]412.0"},
      {"{{ name is string }}{{ words is iterable }}{{ user is mapping }}{{ none_ is none }}",
       "TrueTrueTrueTrue"},
      {"{{ missing is defined }}{{ 4 is divisibleby(2) }}{{ 'a' is in ['a'] }}{{ n is number }}",
       "FalseTrueTrueTrue"},
      {"{{ user.get('role') }}{{ user.get('q', 'w') }}{{ user.keys() | list | first }}",
       "userwrole"},
      {"{{ dict(a=1).a }}{{ range(3) | list }}{{ range(4, 0, -2) | list }}", "1[0, 1, 2][4, 2]"},
      {"{{ strftime_now('%Y')|length }}", "4"},
      {"{{ 'ab'.index('b') }}{{ 'a1'.isalnum() }}{{ 'a=b=c'.partition('=') }}",
       "1True('a', '=', 'b=c')"},
      {"{{ 'aB'.isupper() }}{{ 'A1'.isupper() }}{{ 'b'.islower() }}", "FalseTrueTrue"},
      {"{{ 'a b c' | wordcount }}{{ [1, 2, 3] | batch(2) | list }}{{ user | attr('q') }}",
       "3[[1, 2], [3]]"},
  });
}

TEST(Template, TellsWhatIsGenerated) {
  const Template source(
      "{% for m in ms %}<{{ m }}>{% generation %}é{{ m }}{% endgeneration %}{% endfor %}",
      "a test");
  EXPECT_TRUE(source.marks_generation());
  const Rendering rendering = source.render({{"ms", {"a", "bc"}}});
  EXPECT_EQ(rendering.text, "<a>éa<bc>ébc");
  EXPECT_EQ(rendering.generated, (std::vector<TextSpan>{{3, 6}, {10, 14}}));
  EXPECT_FALSE(Template("{{ x }}", "a test").marks_generation());
}

TEST(Template, ErrorsSayWhereAndWhy) {
  EXPECT_THAT(error_of("a\n{% if x %}"), HasSubstr("a test, line 2: expected {% endif %}"));
  EXPECT_THAT(error_of("{{ 1 +* 2 }}"), HasSubstr("expected a value, got '*'"));
  EXPECT_THAT(error_of("{{ 'a }}"), HasSubstr("a string is not closed"));
  EXPECT_THAT(error_of("{% include 'x' %}"), HasSubstr("unknown block 'include'"));
  EXPECT_THAT(
      error_of("\n\n{{ raise_exception('no ' + 'roles') }}"), HasSubstr("line 3: no roles"));
  EXPECT_THAT(error_of("{{ a.b }}"), HasSubstr("'a' is undefined"));
  EXPECT_THAT(error_of("{{ 1 + 'a' }}"), HasSubstr("int and str do not support the operator +"));
  EXPECT_THAT(error_of("{{ 1 | frob }}"), HasSubstr("unknown filter 'frob'"));
  EXPECT_THAT(error_of("{{ [1].append(2) }}"), HasSubstr("may not change values"));
  EXPECT_THAT(error_of("{{ f() }}"), HasSubstr("'f' is undefined, so it cannot be called"));
  EXPECT_THAT(error_of("ab\xff{{ 'a' | upper }}"), HasSubstr("byte 3 is not valid UTF-8"));
  EXPECT_THAT(error_of("{{ a.2222222222222222222222 }}"), HasSubstr("is too large"));
}

TEST(Template, IsBounded) {
  EXPECT_THAT(error_of("{{ 'a' * 999999999 }}"), HasSubstr("64 MiB"));
  for (const char* text :
       {"{{ ('a' * 10000000).join([''] * 100000) }}",
        "{{ ([''] * 100000) | join('a' * 10000000) }}",
        "{{ ('a' * 60000000) ~ ('b' * 60000000) }}",
        "{{ [('a' * 35000000), ('b' * 35000000)] }}",
        "{{ [('\x01' * 9000000), ('\x01' * 9000000)] | tojson(ensure_ascii=true) }}",
        "{{ ('a' * 20000000) | replace('a', 'bbbb') }}",
        "{{ ('a\n' * 1000) | indent('b' * 1000000) }}",
        "{{ ('&' * 20000000) | escape }}"}) {
    EXPECT_THAT(error_of(text), HasSubstr("64 MiB")) << text;
  }
  for (const char* method : {"split(',')", "rsplit(',')", "split()", "splitlines()"}) {
    const std::string text = fmt::format("{{{{ (',a \\n' * 3000000).{} | length }}}}", method);
    EXPECT_THAT(error_of(text), HasSubstr("steps")) << method;
  }
  EXPECT_THAT(error_of("{{ range(1000000) }}"), HasSubstr("100000"));
  EXPECT_THAT(error_of("{{ 9 ** 99 }}"), HasSubstr("too large"));
  EXPECT_THAT(
      error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(
      error_of("{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a %}{% endfor %}{% "
               "endfor %}"),
      HasSubstr("steps"));
  EXPECT_THAT(
      error_of("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}"),
      HasSubstr("nested deeper"));
  // Expensive single steps, and many operations within one step.
  for (const char* text :
       {"{% for i in range(100000) %}{% set a = ('a' * 9999999) | length %}{% endfor %}",
        "{% set a = range(100000) | list %}{% for i in a %}{% set b = a[1:] %}{% endfor %}",
        "{% set a = range(100000) | list %}{% for i in a %}{% set b = a | sum %}{% endfor %}",
        "{% set a = range(100000) | list %}{% for i in a %}{% set b = 0.5 in a %}{% endfor %}",
        "{{ range(100000) | unique | list | length }}",
        "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(50) %}{% set n.a = [n.a, n.a] %}"
        "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}"}) {
    EXPECT_THAT(error_of(text), HasSubstr("steps")) << text;
  }
  // Many values at once, each below the limits of its own.
  for (const char* text :
       {"{% set n = namespace(a=[]) %}{% for i in range(100) %}"
        "{% set n.a = n.a + ['b' * 1000000 ~ i] %}{% endfor %}",
        "{% set n = namespace(a=[]) %}{% for i in range(100) %}"
        "{% set n.a = [n.a, range(50000) | list] %}{% endfor %}",
        "{% set n = namespace(a=[]) %}{% for i in range(20000) %}"
        "{% set n.a = [n.a, dict(d)] %}{% endfor %}"}) {
    Json variables;
    for (int i = 0; i < 50; ++i) {
      variables["d"][fmt::format("{}", i)] = i;
    }
    EXPECT_THAT(error_of(text, variables), HasSubstr("64 MiB and 1,000 times")) << text;
  }
  // A value that is replaced holds nothing.
  EXPECT_EQ(render("{% for i in range(100) %}{% set a = 'b' * 1000000 ~ i %}{% endfor %}x"), "x");
  // Repeating an empty value costs nothing.
  EXPECT_EQ(render("{{ '' * 2222222222 }}{{ ([] * 2222222222) | length }}"), "0");
}

TEST(Template, IsNotNestedDeeperThanTheStack) {
  for (const char* use :
       {"{{ n.a }}", "{{ n.a == n.b }}", "{{ n.a | tojson }}", "{{ n.a < n.b }}"}) {
    const std::string text =
        "{% set n = namespace(a=[], b=[]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
        "{% set n.b = [n.b] %}{% endfor %}" +
        std::string(use);
    EXPECT_THAT(error_of(text), HasSubstr("nested deeper")) << use;
  }
}

}  // namespace template_test
}  // namespace lockstep::jinja
