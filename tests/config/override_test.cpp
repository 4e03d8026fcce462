// Tests Hydra overrides.
#include "config/hydra/override.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace override_test {

std::string type_name(const Value& value) {
  if (value.is_list()) {
    return "list";
  }
  if (value.is_map()) {
    return "dict";
  }
  switch (scalar_type(value)) {
    case ScalarType::kNull:
      return "null";
    case ScalarType::kBool:
      return "bool";
    case ScalarType::kInteger:
      return "int";
    case ScalarType::kFloat:
      return "float";
    case ScalarType::kString:
      break;
  }
  return "str";
}

struct Case {
  const char* text;
  const char* type;
  const char* value;
};

std::string text_of(const Value& value) {
  return value.is_scalar() ? value.text : to_text(value);
}

// Expected values from the parser of hydra-core 1.3.2.
TEST(Override, TypesValuesAsHydra) {
  const Case cases[] = {
      {"a=", "str", ""},
      {"a= ", "str", ""},
      {"a= b c ", "str", "b c"},
      {"a=10ms", "str", "10ms"},
      {"a=007", "str", "007"},
      {"a=1_000", "int", "1_000"},
      {"a=1__0", "str", "1__0"},
      {"a=0_1", "str", "0_1"},
      {"a=.5", "float", ".5"},
      {"a=5.", "float", "5."},
      {"a=1e5", "float", "1e5"},
      {"a=1.e3", "float", "1.e3"},
      {"a=1.5e+3", "float", "1.5e+3"},
      {"a=+1", "int", "+1"},
      {"a=-inf", "float", "-inf"},
      {"a=NaN", "float", "NaN"},
      {"a=null", "null", "null"},
      {"a=NULL", "null", "null"},
      {"a=True", "bool", "True"},
      {"a=yes", "str", "yes"},
      {"a='x y'", "str", "x y"},
      {"a=\"x'y\"", "str", "x'y"},
      {R"(a='it\'s')", "str", "it's"},
      {R"(a="\\")", "str", R"(\)"},
      {R"(a='abc\\')", "str", R"(abc\)"},
      {R"(a='a\nb')", "str", R"(a\nb)"},
      {"a='null'", "str", "null"},
      {R"(a=a\,b)", "str", "a,b"},
      {R"(a=\ b)", "str", " b"},
      {R"(a=\\)", "str", R"(\)"},
      {R"(a=C:\x)", "str", R"(C:\x)"},
      {"a=a:b", "str", "a:b"},
      {"a=%d|?*@", "str", "%d|?*@"},
      {"a=1 2", "str", "1 2"},
      {"a=- 1", "str", "- 1"},
      {"a={x:1,y:[1,2]}", "dict", "{x: 1, y: [1, 2]}"},
      {"a={x: a:b}", "dict", "{x: a:b}"},
      {"a=[a, b ,c]", "list", "[a, b, c]"},
      {"a=[a b,c]", "list", "[a b, c]"},
      {"a=[]", "list", "[]"},
      {"a={}", "dict", "{}"},
      {"a=[1,[2,{a:b}]]", "list", "[1, [2, {a: b}]]"},
      {"a=${b}", "str", "${b}"},
      {"a=x${b}y", "str", "x${b}y"},
      {"a=${oc.env:X,y}", "str", "${oc.env:X,y}"},
      {"a=int('10')", "int", "10"},
      {"a=int(3.7)", "int", "3"},
      {"a=int(-3.7)", "int", "-3"},
      {"a=int(true)", "int", "1"},
      {"a=int(value=1)", "int", "1"},
      {"a=float(3)", "float", "3.0"},
      {"a=float('inf')", "float", "inf"},
      {"a=str(3)", "str", "3"},
      {"a=str(true)", "str", "true"},
      {"a=str(1e5)", "str", "100000.0"},
      {"a=str(x)", "str", "x"},
      {"a=bool(0)", "bool", "false"},
      {"a=bool(2.5)", "bool", "true"},
      {"a=bool('false')", "bool", "false"},
      {"a=int([1.5,2])", "list", "[1, 2]"},
      {"a=float({b: 1})", "dict", "{b: 1.0}"},
      {"a=sort([3,1,2])", "list", "[1, 2, 3]"},
      {"a=sort([b,a,c], reverse=true)", "list", "[c, b, a]"},
      {"a=sort( [10, 9] )", "list", "[9, 10]"},
      // Extensions of Hydra's grammar.
      {"a=d\xc3\xa9j\xc3\xa0.txt", "str", "d\xc3\xa9j\xc3\xa0.txt"},
      {"a=${oc.env:X,${b}}", "str", "${oc.env:X,${b}}"},
  };
  for (const Case& expected : cases) {
    const Override got = parse_override(expected.text);
    EXPECT_EQ(got.key, "a") << expected.text;
    ASSERT_TRUE(got.value) << expected.text;
    EXPECT_EQ(type_name(*got.value), expected.type) << expected.text;
    EXPECT_EQ(text_of(*got.value), expected.value) << expected.text;
  }
}

TEST(Override, ReadsKeys) {
  const auto kind = [](const char* text) { return parse_override(text).kind; };
  EXPECT_EQ(kind("a.b=1"), Override::Kind::kChange);
  EXPECT_EQ(kind("+a.b=1"), Override::Kind::kAdd);
  EXPECT_EQ(kind("++a.b=1"), Override::Kind::kForceAdd);
  EXPECT_EQ(kind("~a.b"), Override::Kind::kDelete);
  EXPECT_FALSE(parse_override("~a.b").value);
  EXPECT_EQ(parse_override("~a.b=1").value->text, "1");
  EXPECT_EQ(parse_override("a.b-c.$d=1").key, "a.b-c.$d");
  EXPECT_EQ(parse_override("a.0.b=1").key, "a.0.b");
  EXPECT_EQ(parse_override("a[0].b=1").key, "a.0.b");
  EXPECT_EQ(parse_override("hydra/launcher=x").key, "hydra/launcher");
  EXPECT_EQ(parse_override("a/b@c.d=x").package, "c.d");
  EXPECT_EQ(parse_override("a@=x").package, "");
  EXPECT_FALSE(parse_override("a=x@y").package);
}

TEST(Override, RefusesWhatHydraRefuses) {
  for (const char* text :
       {"a=b=c",
        "a=~/x",
        "a=(x)",
        "a=x)",
        "a=]",
        "a='x",
        "a=x'y",
        "a='a'b",
        "a=!x",
        "a=#x",
        "a=[1,]",
        "a={a:1,}",
        "a = b",
        " a=b",
        "a",
        "a.=1",
        "1=2",
        "=1",
        "a=[1",
        "a={a}",
        "a={a:1",
        "a=${b",
        "+",
        "~",
        "a..b=1",
        "a=[,1]",
        "a=int('3.7')",
        "a=int(null)",
        "a=bool('yes')",
        "a=foo(1)",
        "a=int(x=1)",
        "a/b.c=1",
        "a@b@c=1",
        "a={a:1,a:2}"}) {
    EXPECT_THROW(parse_override(text), Error) << text;
  }
}

TEST(Override, RefusesSweepsWithTheReason) {
  for (const char* text :
       {"a=1,2",
        "a=null,1",
        "a=a b, c",
        "a=choice(1,2)",
        "a=range(1,5)",
        "a=interval(0,1)",
        "a=glob(*)",
        "a=tag(t,choice(1,2))",
        "a=sort(3,1,2)",
        "a=int(1,2)"}) {
    try {
      parse_override(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("sweep"), std::string::npos) << error.what();
      EXPECT_FALSE(error.remedy().empty());
    }
  }
  EXPECT_THROW(parse_override("a=shuffle([1,2])"), Error);
}

TEST(Override, TellsTheColumn) {
  try {
    parse_override("training.seed=1=2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("training.seed=1=2: column 16: '='"), std::string::npos)
        << error.what();
  }
}

TEST(Override, DeepNestingIsAnErrorNotACrash) {
  EXPECT_THROW(parse_override("a=" + std::string(100'000, '[')), Error);
  EXPECT_THROW(parse_override("a=" + std::string(100'000, '{')), Error);
  std::string calls = "a=";
  for (int i = 0; i < 10'000; ++i) {
    calls += "int(";
  }
  EXPECT_THROW(parse_override(calls), Error);
}

TEST(Scalar, ReadsNumbersAndWords) {
  EXPECT_EQ(to_integer("5e8"), 500'000'000);
  EXPECT_EQ(to_integer("1_000"), 1000);
  EXPECT_EQ(to_integer("+7"), 7);
  EXPECT_EQ(to_integer("-9223372036854775808"), INT64_MIN);
  for (const char* text :
       {"", "+", "-", "1.5", "9223372036854775808", "1e300", "x", "0x10", "+-1"}) {
    EXPECT_FALSE(to_integer(text)) << text;
  }
  EXPECT_EQ(to_double("1e-5"), 1e-5);
  EXPECT_EQ(to_double("-.inf"), -INFINITY);
  EXPECT_FALSE(to_double("1e999"));
  EXPECT_FALSE(to_double("1e"));
  EXPECT_FALSE(to_double("+-1"));
  EXPECT_EQ(to_bool("Yes"), true);
  EXPECT_EQ(to_bool("OFF"), false);
  EXPECT_FALSE(to_bool("maybe"));
  for (const double value : {5e-5, 0.1, 1.0, 1e100, 1e16, -2.5e-300, 123456789.125}) {
    EXPECT_EQ(to_double(number_text(value)), value);
  }
  EXPECT_EQ(number_text(5e-5), "5.0e-05");
  EXPECT_EQ(number_text(3), "3.0");
}

}  // namespace override_test
}  // namespace lockstep::config
