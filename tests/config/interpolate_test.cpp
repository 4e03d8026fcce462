// Tests OmegaConf interpolations.
#include "config/hydra/interpolate.h"

#include <gmock/gmock.h>

#include "base/format.h"
#include "config/core/yaml.h"
#include "config/harness.h"

namespace lockstep::config {
namespace interpolate_test {

using testing::HasSubstr;

/// Returns the value of `path` in a YAML text on one line.
std::string resolved(const std::string& yaml, const std::string& path) {
  const Value tree = parse_yaml(yaml, "a.yaml");
  const Environment environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "USER"    ? std::optional<std::string>("ann")
           : name == "COUNT" ? std::optional<std::string>("3")
           : name == "EMPTY" ? std::optional<std::string>("")
                             : std::nullopt;
  };
  RunFacts facts;
  facts.hydra = {{"runtime.cwd", "/work"}, {"runtime.choices.model", "small"}};
  facts.now = 86400LL * 365 * 10;
  Interpolator interpolator(tree, environment, facts);
  try {
    const Path split = split_path(path);
    const Value value = interpolator.resolve(*tree.find(split), split);
    return value.is_scalar() ? value.text : to_text(value);
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

// Expected values from OmegaConf 2.3.
TEST(Interpolate, FollowsKeys) {
  const std::string yaml =
      "a: {b: 1, c: [x, y], d: '${.b}', e: {f: '${..b}', g: '${...top}'}}\ntop: t\nname: b\n"
      "whole: ${a}\ntext: x-${a.b}-${top}\nindex: ${a.c.1}\nbracket: ${a.c[0]}\nnested: "
      "${a.${name}}\n"
      "chain: ${whole.c}\nspaces: ${ top }\nescaped: \\${top}\ntwice: \\\\${top}\nnull_: null\nn: "
      "x${null_}\n"
      "both: ${a.b}${a.b}\n";
  EXPECT_EQ(resolved(yaml, "a.d"), "1");
  EXPECT_EQ(resolved(yaml, "a.e.f"), "1");
  EXPECT_EQ(resolved(yaml, "a.e.g"), "t");
  EXPECT_EQ(resolved(yaml, "text"), "x-1-t");
  EXPECT_EQ(resolved(yaml, "index"), "y");
  EXPECT_EQ(resolved(yaml, "bracket"), "x");
  EXPECT_EQ(resolved(yaml, "nested"), "1");
  EXPECT_EQ(resolved(yaml, "chain"), "[x, y]");
  EXPECT_EQ(resolved(yaml, "spaces"), "t");
  EXPECT_EQ(resolved(yaml, "escaped"), "${top}");
  EXPECT_EQ(resolved(yaml, "twice"), "\\t");
  EXPECT_EQ(resolved(yaml, "n"), "xNone");
  EXPECT_EQ(resolved(yaml, "both"), "11");
  EXPECT_EQ(resolved(yaml, "whole"), "{b: 1, c: [x, y], d: 1, e: {f: 1, g: t}}");
}

TEST(Interpolate, CallsResolvers) {
  EXPECT_EQ(resolved("a: ${oc.env:USER}", "a"), "ann");
  EXPECT_EQ(resolved("a: /home/${oc.env:USER}/x", "a"), "/home/ann/x");
  EXPECT_EQ(resolved("a: ${oc.env:NONE,else}", "a"), "else");
  EXPECT_EQ(resolved("a: ${oc.env:NONE, 'a, b'}", "a"), "a, b");
  EXPECT_EQ(resolved("a: ${oc.env:NONE,null}", "a"), "null");
  EXPECT_EQ(resolved("a: ${oc.env:EMPTY,else}", "a"), "");
  EXPECT_EQ(resolved("a: ${oc.env:NONE,${b}}\nb: 5", "a"), "5");
  EXPECT_EQ(resolved("a: ${oc.env:${b}}\nb: USER", "a"), "ann");
  EXPECT_EQ(resolved("a: ${oc.env:NONE,a:b}", "a"), "a:b");
  EXPECT_EQ(resolved("a: ${oc.decode:${oc.env:COUNT}}", "a"), "3");
  EXPECT_EQ(resolved("a: \"${oc.decode:'[1, 2]'}\"", "a"), "[1, 2]");
  EXPECT_EQ(resolved("a: ${oc.select:b.c,9}\nb: {d: 1}", "a"), "9");
  EXPECT_EQ(resolved("a: ${oc.select:b.d,9}\nb: {d: 1}", "a"), "1");
  EXPECT_EQ(resolved("a: ${oc.dict.keys:b}\nb: {c: 1, d: 2}", "a"), "['c', 'd']");
  EXPECT_EQ(resolved("a: ${oc.dict.values:b}\nb: {c: 1, d: 2}", "a"), "[1, 2]");
  EXPECT_EQ(resolved("a: ${hydra:runtime.cwd}/out", "a"), "/work/out");
  EXPECT_EQ(resolved("a: ${hydra:runtime.choices.model}", "a"), "small");
  EXPECT_EQ(resolved("a: ${hydra:run.dir}\nhydra: {run: {dir: d}}", "a"), "d");
  EXPECT_EQ(resolved("a: ${now:%Y}", "a"), "1979");
}

TEST(Interpolate, ExplainsWhatIsWrong) {
  EXPECT_THAT(resolved("a: ${b}", "a"), HasSubstr("${b}: unknown key (a.yaml:1)"));
  EXPECT_THAT(
      resolved("a: ${oc.env:NONE}", "a"), HasSubstr("environment variable NONE is not set"));
  EXPECT_THAT(resolved("a: ${a}", "a"), HasSubstr("refers to itself"));
  EXPECT_THAT(resolved("a: ${b}\nb: x${c}\nc: ${a}", "a"), HasSubstr("refers to itself"));
  EXPECT_THAT(resolved("a: {b: '${a}'}", "a.b"), HasSubstr("refers to itself"));
  EXPECT_THAT(resolved("a: x${b}\nb: [1]", "a"), HasSubstr("a list or a map into a string"));
  EXPECT_THAT(resolved("a: ${b", "a"), HasSubstr("has no closing }"));
  EXPECT_THAT(resolved("a: ${eval:1+1}", "a"), HasSubstr("unknown resolver 'eval'"));
  EXPECT_THAT(resolved("a: ${....b}", "a"), HasSubstr("above the root"));
  EXPECT_THAT(resolved("a: ${b}\nb: ???", "a"), HasSubstr("a value is required"));
}

TEST(Interpolate, BoundsWhatGrows) {
  std::string doubling = "v0: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n";
  for (int i = 1; i <= 60; ++i) {
    const std::string last = "${v" + std::to_string(i - 1) + "}";
    doubling += "v" + std::to_string(i) + ": " + last + last + "\n";
  }
  EXPECT_THAT(resolved(doubling, "v60"), HasSubstr("error: "));
  std::string lists = "v0: [1, 1, 1, 1]\n";
  for (int i = 1; i <= 40; ++i) {
    const std::string last = "\"${v" + std::to_string(i - 1) + "}\"";
    lists += "v" + std::to_string(i) + ": [" + last + ", " + last + "]\n";
  }
  EXPECT_THAT(resolved(lists, "v40"), HasSubstr("error: "));
  std::string chain = "v0: 1\n";
  for (int i = 1; i <= 200; ++i) {
    chain += fmt::format("v{}: ${{v{}}}\n", i, i - 1);
  }
  EXPECT_THAT(resolved(chain, "v200"), HasSubstr("nested deeper"));
  std::string nested;
  for (int i = 0; i < 5000; ++i) {
    nested += "${";
  }
  EXPECT_THAT(resolved("a: '" + nested + std::string(5000, '}') + "'", "a"), HasSubstr("error: "));
}

TEST(Interpolate, VariablesOfAFileAreAccepted) {
  const Harness harness;
  harness.write(
      "a.yaml",
      "width: 3\nnames:\n  run: r${width}\nunused: 1\nseed: 5\n"
      "training:\n  run_name: ${names.run}\n  data_seed: ${seed}\n  max_steps: ${training.seed}\n");
  EXPECT_THAT(harness.error({"-c", "@/a.yaml"}), HasSubstr("unused (@/a.yaml:4): unknown key;"));
  const Config config = harness.run({"-c", "@/a.yaml", "~unused"}).config;
  EXPECT_EQ(config.training.run_name, "r3");
  EXPECT_EQ(config.training.data_seed, 5);
  EXPECT_EQ(config.training.seed, 5);
  EXPECT_EQ(config.training.max_steps, 5);
  // A variable on the command line.
  EXPECT_EQ(harness.run({"+x=4", "training.max_steps=${x}"}).config.training.max_steps, 4);
  EXPECT_THAT(harness.error({"+x=4"}), HasSubstr("x (command line: +x=4): unknown key"));
}

TEST(Interpolate, TimesAreThoseOfTheLauncher) {
  Harness harness;
  harness.environment["LOCKSTEP_STARTED"] = "315360000";
  EXPECT_EQ(harness.run({"output_dir=runs/${now:%Y}"}).config.training.output_dir, "runs/1979");
}

}  // namespace interpolate_test
}  // namespace lockstep::config
