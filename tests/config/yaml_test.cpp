// Tests the YAML and JSON parsers.
#include "config/core/yaml.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::config {
namespace yaml_test {

using testing::HasSubstr;

std::string yaml(const std::string& text) {
  try {
    return to_text(parse_yaml(text, "a.yaml"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return std::string("error: ") + error.what();
  }
}

std::string json(const std::string& text) {
  try {
    return to_text(parse_json_with_comments(text, "a.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return std::string("error: ") + error.what();
  }
}

TEST(Yaml, ReadsWhatConfigurationsHold) {
  EXPECT_EQ(
      yaml("a: 1\nb: [x, 'y', \"z\"]\nc: {d: null, e: ~}\nf:\n"),
      "{a: 1, b: [x, 'y', 'z'], c: {d: null, e: null}, f: null}");
  EXPECT_EQ(
      yaml("a: &x {b: 1}\nc: *x\nd: {<<: *x, b: 2, e: 3}\n"),
      "{a: {b: 1}, c: {b: 1}, d: {b: 2, e: 3}}");
  EXPECT_EQ(yaml("a: |\n  x\n  y\nb: >-\n  x\n  y\n"), "{a: 'x\ny\n', b: 'x y'}");
  EXPECT_EQ(yaml("a: !!str 1\n1: x\ntrue: y\n"), "{a: '1', 1: x, true: y}");
  EXPECT_EQ(yaml(""), "{}");
  EXPECT_EQ(yaml("# comment alone\n"), "{}");
}

TEST(Yaml, KeepsTheLineOfEachValue) {
  const Value tree = parse_yaml("a: 1\n\nb:\n  c: 2\n  d: [3,\n    4]\n", "a.yaml");
  EXPECT_EQ(tree.find(Path{"a"})->origin.place, "a.yaml:1");
  EXPECT_EQ(tree.find(Path{"b", "c"})->origin.place, "a.yaml:4");
  EXPECT_EQ(tree.find(Path{"b", "d", "1"})->origin.place, "a.yaml:6");
}

TEST(Yaml, RefusesWhatIsWrongWithTheLine) {
  EXPECT_THAT(yaml("a: 1\n b: 2\n"), HasSubstr("a.yaml:2: invalid YAML"));
  EXPECT_THAT(yaml("a: 1\na: 2\n"), HasSubstr("a.yaml:2: duplicate key 'a' in a map"));
  EXPECT_THAT(yaml("a: [1\n"), HasSubstr("invalid YAML"));
  EXPECT_THAT(yaml("a: 1\n---\nb: 2\n"), HasSubstr("only one YAML document"));
  EXPECT_THAT(yaml("a: !!python/object/apply:os.system [ls]\n"), HasSubstr("is not allowed"));
  EXPECT_THAT(yaml("a: !thing 1\n"), HasSubstr("unknown tag"));
  EXPECT_THAT(yaml("{[1]: 2}\n"), HasSubstr("must be scalars"));
  EXPECT_THAT(yaml("a: *x\n"), HasSubstr("invalid YAML"));
  EXPECT_THAT(yaml("a: &x [*x]\n"), HasSubstr("error: "));
  EXPECT_THAT(yaml("a: {<<: 3}\n"), HasSubstr("<< accepts only maps"));
  EXPECT_THAT(yaml(std::string("a: \0b", 5)), HasSubstr("zero byte"));
}

TEST(Yaml, BombsAreDefused) {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char name = 'b'; name <= 'j'; ++name) {
    const std::string alias = fmt::format("*{}", static_cast<char>(name - 1));
    bomb += fmt::format("{0}: &{0} [", name);
    for (int i = 0; i < 10; ++i) {
      bomb += i == 0 ? alias : fmt::format(",{}", alias);
    }
    bomb += "]\n";
  }
  EXPECT_THAT(yaml(bomb), HasSubstr("after alias expansion"));
  EXPECT_THAT(yaml(std::string("a: ").append(100'000, '[')), HasSubstr("error: "));
  EXPECT_THAT(
      yaml(std::string("a: ").append(80, '[').append(80, ']')), HasSubstr("deeper than 64"));
  EXPECT_THAT(yaml(std::string(5 << 20, 'a')), HasSubstr("the maximum size"));
  std::string wide;
  for (int i = 0; i < 30'000; ++i) {
    wide += fmt::format("k{}: 1\n", i);
  }
  EXPECT_THAT(yaml(wide), HasSubstr("more than 20000 values"));
}

TEST(Json, ReadsCommentsAndTrailingCommas) {
  EXPECT_EQ(
      json("// a\n{\"a\": 1, /* b */ \"b\": [1, 2.5e3, true, null,], # c\n \"c\": "
           "\"x\\n\\u00e9\\ud83d\\ude00\",}"),
      "{a: 1, b: [1, 2.5e3, true, null], c: 'x\n\xc3\xa9\xf0\x9f\x98\x80'}");
  EXPECT_EQ(json("[\t1 ,\r\n-2]"), "[1, -2]");
  const Value tree = parse_json_with_comments("{\n\"a\":\n  {\"b\": 1}}", "a.json");
  EXPECT_EQ(tree.find(Path{"a", "b"})->origin.place, "a.json:3");
}

TEST(Json, RefusesWhatIsWrongWithTheLine) {
  EXPECT_THAT(json("{\"a\": 1\n \"b\": 2}"), HasSubstr("a.json:2"));
  EXPECT_THAT(json("{\"a\": 1, \"a\": 2}"), HasSubstr("duplicate name"));
  for (const char* text :
       {"",
        "{",
        "[",
        "[1",
        "{\"a\"}",
        "{\"a\":}",
        "{a: 1}",
        "[yes]",
        "\"x",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "1 2",
        "[1 2]",
        "tru",
        "{\"a\":1]",
        "\"a\nb\"",
        "[,]",
        "+",
        "/*"}) {
    EXPECT_THAT(json(text), HasSubstr("error: ")) << text;
  }
  EXPECT_THAT(json(std::string(100'000, '[')), HasSubstr("deeper than 64"));
}

}  // namespace yaml_test
}  // namespace lockstep::config
