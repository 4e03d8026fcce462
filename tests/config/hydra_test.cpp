// Tests composing Hydra configuration trees.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "config/harness.h"
#include "config/hydra/compose.h"
#include "config/hydra/layers.h"

namespace lockstep::config {
namespace hydra_test {

using testing::HasSubstr;

/// A tree with every form of the defaults list.
class HydraTree : public testing::Test {
 protected:
  void SetUp() override {
    const std::map<std::string, std::string> files = {
        {"config",
         "defaults:\n  - db: mysql\n  - srv: apache\n  - optional local: mine\n  - _self_\n"
         "  - exp: null\n\nname: base\ndb: {port: 1}\n"},
        {"nodefaults", "a: 1\nb: {c: 2}\nl: [1, 2]\n"},
        {"noself", "defaults:\n  - db: mysql\ndb: {port: 7}\n"},
        {"selffirst", "defaults:\n  - _self_\n  - db: mysql\ndb: {port: 7, extra: 1}\n"},
        {"pkg",
         "defaults:\n  - db@src: mysql\n  - db@dst.inner: pg\n  - srv@_global_: nginx\n  - "
         "_self_\n"},
        {"list", "defaults:\n  - srv: [apache, nginx]\n  - _self_\n"},
        {"interp",
         "defaults:\n  - db: mysql\n  - srv: apache\n  - combo: ${db}_${srv}\n  - _self_\n"},
        {"nested", "defaults:\n  - outer: one\n  - _self_\n"},
        {"missing", "defaults:\n  - db: ???\n"},
        {"bad", "defaults:\n  - db: mysqll\n"},
        {"other", "defaults:\n  - config\n  - nodefaults@sub\n  - _self_\nz: 1\n"},
        {"order", "defaults:\n  - override db: pg\n  - db: mysql\n"},
        {"dup", "defaults:\n  - db: mysql\n  - db: pg\n"},
        {"cycle", "defaults:\n  - cycle2\n"},
        {"cycle2", "defaults:\n  - cycle\n"},
        {"db/mysql", "driver: mysql\nport: 3306\nopt: {x: 1, y: [1,2]}\n"},
        {"db/pg", "driver: pg\nport: 5432\nopt: {x: 2}\n"},
        {"db/child", "defaults:\n  - mysql\n  - _self_\nport: 9999\n"},
        {"srv/apache", "name: apache\nhttps: true\n"},
        {"srv/nginx", "name: nginx\nworkers: 3\n"},
        {"combo/mysql_apache", "note: both\n"},
        {"combo/pg_apache", "note: pga\n"},
        {"exp/big",
         "# @package _global_\ndefaults:\n  - override /db: pg\n  - override /srv: nginx\n\n"
         "name: big\ndb: {port: 1000}\n"},
        {"exp/noself",
         "# @package _global_\ndefaults:\n  - /extra: e\n  - override /db: pg\nname: big2\n"
         "extra: {v: 5}\n"},
        {"exp/plain", "name: plainexp\n"},
        {"extra/e", "v: 1\nw: 2\n"},
        {"outer/one",
         "defaults:\n  - inner: a\n  - inner@second: b\n  - /db@mydb: mysql\n  - _self_\nk: 1\n"},
        {"outer/inner/a", "va: 1\n"},
        {"outer/inner/b", "vb: 2\n"},
        {"outer/header", "# @package foo.bar\ndefaults:\n  - inner: a\n  - _self_\nk: 2\n"},
        {"outer/here", "defaults:\n  - /db@_here_: pg\n  - _self_\nk: 3\n"},
        {"outer/glob", "defaults:\n  - /db@_global_.g: pg\n  - _self_\nk: 4\n"},
    };
    for (const auto& [name, text] : files) {
      harness_.write(name + ".yaml", text);
    }
  }

  Value compose_tree(const std::string& name, const std::vector<std::string>& overrides) {
    std::vector<Override> parsed;
    for (const std::string& text : overrides) {
      parsed.push_back(parse_override(text));
    }
    Composition result =
        compose({.file = harness_.path(name + ".yaml"), .folders = {}}, std::move(parsed));
    Problems problems;
    for (const Override& override : result.overrides) {
      apply_override(result.tree, override, kCommandLineOrder, problems);
    }
    problems.throw_if_any();
    return result.tree;
  }

  void expect(
      const std::string& name, const std::vector<std::string>& overrides, const std::string& json) {
    EXPECT_EQ(
        nlohmann::json::parse(to_json_text(compose_tree(name, overrides))),
        nlohmann::json::parse(json))
        << name << testing::PrintToString(overrides);
  }

  std::string error(const std::string& name, const std::vector<std::string>& overrides) {
    try {
      compose_tree(name, overrides);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  Harness harness_;
};

// Expected values from hydra-core 1.3.2 with the same tree.
TEST_F(HydraTree, ComposesAsHydra) {
  const std::string mysql = R"("driver":"mysql","opt":{"x":1,"y":[1,2]})";
  const std::string apache = R"("srv":{"name":"apache","https":true})";
  const std::string nginx = R"("srv":{"name":"nginx","workers":3})";
  expect("config", {}, "{\"db\":{" + mysql + ",\"port\":1}," + apache + R"(,"name":"base"})");
  expect(
      "config",
      {"db=pg"},
      R"({"db":{"driver":"pg","port":1,"opt":{"x":2}},)" + apache + R"(,"name":"base"})");
  expect(
      "config",
      {"exp=big"},
      R"({"db":{"driver":"pg","port":1000,"opt":{"x":2}},)" + nginx + R"(,"name":"big"})");
  expect(
      "config",
      {"exp=big", "db=mysql"},
      "{\"db\":{" + mysql + ",\"port\":1000}," + nginx + R"(,"name":"big"})");
  expect(
      "config",
      {"exp=noself"},
      R"({"db":{"driver":"pg","port":1,"opt":{"x":2}},)" + apache +
          R"(,"name":"big2","extra":{"v":5,"w":2}})");
  expect(
      "config",
      {"exp=plain"},
      "{\"db\":{" + mysql + ",\"port\":1}," + apache +
          R"(,"name":"base","exp":{"name":"plainexp"}})");
  expect("config", {"~db"}, "{" + apache + R"(,"name":"base","db":{"port":1}})");
  expect(
      "config",
      {"+extra@q.r=e"},
      "{\"db\":{" + mysql + ",\"port\":1}," + apache +
          R"(,"name":"base","q":{"r":{"v":1,"w":2}}})");
  expect(
      "config",
      {"db=child"},
      "{\"db\":{" + mysql + ",\"port\":1}," + apache + R"(,"name":"base"})");
  expect(
      "config",
      {"+db@second=pg", "second.port=1"},
      "{\"db\":{" + mysql + ",\"port\":1}," + apache +
          R"(,"name":"base","second":{"driver":"pg","port":1,"opt":{"x":2}}})");
  expect(
      "config",
      {"db={port: 3}"},
      "{\"db\":{" + mysql + ",\"port\":3}," + apache + R"(,"name":"base"})");
}

TEST_F(HydraTree, OrdersPackagesAndListsAsHydra) {
  const std::string mysql = R"("driver":"mysql","opt":{"x":1,"y":[1,2]})";
  expect("nodefaults", {"a=3", "l=[5]"}, R"({"a":3,"b":{"c":2},"l":[5]})");
  expect("noself", {}, "{\"db\":{" + mysql + ",\"port\":7}}");
  expect("selffirst", {}, "{\"db\":{" + mysql + ",\"port\":3306,\"extra\":1}}");
  expect(
      "pkg",
      {"db@src=pg"},
      R"({"src":{"driver":"pg","port":5432,"opt":{"x":2}},"dst":{"inner":{"driver":"pg","port":5432,)"
      R"("opt":{"x":2}}},"name":"nginx","workers":3})");
  expect(
      "pkg",
      {"srv@_global_=apache", "~db@src", "~db@dst.inner"},
      R"({"name":"apache","https":true})");
  expect("list", {}, R"({"srv":{"name":"nginx","https":true,"workers":3}})");
  expect("list", {"srv=[nginx,apache]"}, R"({"srv":{"name":"apache","https":true,"workers":3}})");
  expect("list", {"srv=nginx"}, R"({"srv":{"name":"nginx","workers":3}})");
  expect(
      "interp",
      {"db=pg"},
      R"({"db":{"driver":"pg","port":5432,"opt":{"x":2}},"srv":{"name":"apache","https":true},)"
      R"("combo":{"note":"pga"}})");
  expect(
      "other",
      {},
      "{\"db\":{" + mysql +
          R"(,"port":1},"srv":{"name":"apache","https":true},"name":"base",)"
          R"("sub":{"a":1,"b":{"c":2},"l":[1,2]},"z":1})");
}

TEST_F(HydraTree, NestsGroupsAsHydra) {
  const std::string mydb = R"("mydb":{"driver":"mysql","port":3306,"opt":{"x":1,"y":[1,2]}})";
  expect("nested", {}, R"({"outer":{"inner":{"va":1},"second":{"vb":2},)" + mydb + R"(,"k":1}})");
  expect(
      "nested",
      {"outer/inner@outer.second=a"},
      R"({"outer":{"inner":{"va":1},"second":{"va":1},)" + mydb + R"(,"k":1}})");
  expect("nested", {"outer=header"}, R"({"foo":{"bar":{"inner":{"va":1},"k":2}}})");
  expect("nested", {"outer=here"}, R"({"outer":{"driver":"pg","port":5432,"opt":{"x":2},"k":3}})");
  expect(
      "nested",
      {"outer=glob"},
      R"({"g":{"driver":"pg","port":5432,"opt":{"x":2}},"outer":{"k":4}})");
}

TEST_F(HydraTree, ExplainsWhatIsWrong) {
  EXPECT_THAT(error("config", {"srv=nope"}), HasSubstr("'srv' has: apache, nginx"));
  EXPECT_THAT(error("bad", {}), HasSubstr("'db/mysqll' not found. Did you mean 'mysql'?"));
  EXPECT_THAT(error("bad", {}), HasSubstr("bad.yaml:2"));
  EXPECT_THAT(error("config", {"extra=e"}), HasSubstr("+extra=e"));
  EXPECT_THAT(error("pkg", {"db=pg"}), HasSubstr("did you mean db@dst.inner or db@src?"));
  EXPECT_THAT(error("missing", {}), HasSubstr("db=OPTION"));
  EXPECT_EQ(error("missing", {"db=pg"}), "");
  EXPECT_THAT(error("order", {}), HasSubstr("at the end of the defaults list"));
  EXPECT_THAT(error("dup", {}), HasSubstr("'db' is selected twice"));
  EXPECT_THAT(error("cycle", {}), HasSubstr("includes itself"));
  EXPECT_THAT(error("config", {"~db=pg"}), HasSubstr("not in the defaults list"));
  EXPECT_THAT(error("config", {"nope/x=1"}), HasSubstr("unknown configuration group"));
  EXPECT_THAT(error("config", {"++db=pg"}), HasSubstr("one +"));
  harness_.write("malformed.yaml", "defaults: {a: b}\n");
  EXPECT_THAT(error("malformed", {}), HasSubstr("'defaults' must be a list"));
  harness_.write("malformed.yaml", "defaults:\n  - a: {b: c}\n");
  EXPECT_THAT(error("malformed", {}), HasSubstr("malformed.yaml:2"));
  harness_.write("malformed.yaml", "- a\n");
  EXPECT_THAT(error("malformed", {}), HasSubstr("must be a map of keys"));
}

/// A tree as in research repositories: groups for model, data, trainer and experiment, folders in
/// variables, TrainingArguments below trainer.args.
class ForeignTree : public testing::Test {
 protected:
  void SetUp() override {
    const std::map<std::string, std::string> files = {
        {"config",
         "defaults:\n  - model: gpt2-small\n  - data: shakespeare\n  - trainer: finetune\n  - "
         "optimizer: adamw\n"
         "  - paths: default\n  - hydra: default\n  - optional local: default\n  - experiment: "
         "null\n  - _self_\n\n"
         "seed: 7\ntask_name: ???\n"},
        {"model/gpt2-small", "path: openai-community/gpt2\n"},
        {"model/llama",
         "defaults:\n  - gpt2-small\n  - _self_\npath: ${oc.env:MODELS,/models}/llama\n"},
        {"data/shakespeare",
         "train: ${paths.data_dir}/train.txt\nvalidation:\n  - ${paths.data_dir}/valid.txt\n"
         "sequence_length: 128\n"},
        {"data/alpaca", "train: ${paths.data_dir}/alpaca.jsonl\nprompt: alpaca\npacking: false\n"},
        {"trainer/finetune",
         "args:\n  output_dir: ${paths.output_dir}\n  per_device_train_batch_size: 4\n  "
         "evaluation_strategy: no\n"
         "  logging_dir: ${trainer.args.output_dir}/logs\n  seed: ${seed}\n"},
        {"optimizer/adamw",
         "# @package training\noptim: adamw_torch\nlearning_rate: 1e-5\nweight_decay: 0.01\n"},
        {"optimizer/hot", "# @package training\noptim: adamw_torch\nlearning_rate: 1e-3\n"},
        {"paths/default",
         "root: ${oc.env:ROOT,.}\ndata_dir: ${.root}/data\n"
         "output_dir: ${.root}/saves/${task_name}\n"},
        {"hydra/default",
         "defaults:\n  - override hydra_logging: colorlog\nrun:\n  dir: ${paths.output_dir}\n"},
        {"experiment/long",
         "# @package _global_\n\ndefaults:\n  - override /model: llama\n  - override /data: "
         "alpaca\n"
         "  - override /optimizer: hot\n\nseed: 8\ntrainer:\n  args:\n    max_steps: 1000\n"
         "    warmup_ratio: 0.1\n    per_device_train_batch_size: 2\ntraining:\n  "
         "lr_scheduler_type: cosine\n"},
    };
    for (const auto& [name, text] : files) {
      harness_.write("conf/" + name + ".yaml", text);
    }
  }

  Resolution run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--config-path", "@/conf", "--config-name", "config"});
    return harness_.run(std::move(arguments));
  }

  Harness harness_;
};

TEST_F(ForeignTree, RunsAsItIs) {
  const Resolution result = run({"task_name=first"});
  const Config& config = result.config;
  EXPECT_EQ(config.model.path, "openai-community/gpt2");
  EXPECT_EQ(config.data.train, std::vector<std::string>{"./data/train.txt"});
  EXPECT_EQ(config.data.validation, std::vector<std::string>{"./data/valid.txt"});
  EXPECT_EQ(config.data.sequence_length, 128);
  EXPECT_EQ(config.training.output_dir, "./saves/first");
  EXPECT_EQ(config.training.per_device_train_batch_size, 4);
  EXPECT_EQ(config.training.optim, "adamw_torch");
  EXPECT_EQ(config.training.learning_rate, 1e-5);
  EXPECT_EQ(config.training.seed, 7);
  EXPECT_EQ(harness_.origin(result, "data.sequence_length"), "@/conf/data/shakespeare.yaml:4");
  EXPECT_TRUE(any_holds(result.warnings, "training.logging_dir"));
}

TEST_F(ForeignTree, AnExperimentChangesTheGroups) {
  harness_.environment["ROOT"] = "/scratch";
  const Resolution result = run(
      {"experiment=long",
       "task_name=second",
       "trainer.args.per_device_train_batch_size=1",
       "optimizer=adamw",
       "++training.adam_beta2=0.95",
       "seed=9"});
  const Config& config = result.config;
  EXPECT_EQ(config.model.path, "/models/llama");
  EXPECT_EQ(config.data.train, std::vector<std::string>{"/scratch/data/alpaca.jsonl"});
  EXPECT_EQ(config.data.prompt, "alpaca");
  EXPECT_EQ(config.data.packing, "none");
  EXPECT_EQ(config.training.max_steps, 1000);
  EXPECT_EQ(config.training.warmup_steps, 0.1);
  EXPECT_EQ(config.training.lr_scheduler_type, "cosine");
  EXPECT_EQ(config.training.per_device_train_batch_size, 1);
  EXPECT_EQ(config.training.learning_rate, 1e-5);
  EXPECT_EQ(config.training.adam_beta2, 0.95);
  EXPECT_EQ(config.training.seed, 9);
  EXPECT_EQ(config.training.output_dir, "/scratch/saves/second");
}

TEST_F(ForeignTree, TellsWhatIsMissingOrUnknown) {
  const auto error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--config-path=@/conf", "-cn", "config"});
    return harness_.error(arguments);
  };
  EXPECT_THAT(error({}), HasSubstr("${task_name}: a value is required"));
  EXPECT_THAT(error({"task_name=x", "model=lama"}), HasSubstr("Did you mean 'llama'?"));
  EXPECT_THAT(
      error({"task_name=x", "+handler=Y"}),
      HasSubstr("handler (command line: +handler=Y): unknown key"));
  EXPECT_THAT(error({"task_name=x", "hydra/launcher=submitit"}), testing::IsEmpty());
}

TEST(Hydra, FindsTheTree) {
  Harness harness;
  harness.write("a/main.yaml", "defaults:\n  - data: d\n  - _self_\ntraining: {seed: 1}\n");
  harness.write("b/data/d.yaml", "sequence_length: 16\n");
  const auto sequence = [&](const std::vector<std::string>& arguments) {
    return harness.run(arguments).config.data.sequence_length;
  };
  EXPECT_EQ(sequence({"-cp", "@/a", "-cn", "main", "-cd", "@/b"}), 16);
  EXPECT_EQ(sequence({"-cp", "@/a", "-cn", "main.yaml", "--config-dir=@/b"}), 16);
  EXPECT_EQ(sequence({"-c", "@/a/main.yaml", "hydra.searchpath=[@/b]"}), 16);
  EXPECT_EQ(sequence({"-c", "@/a/main.yaml", "hydra.searchpath=['file://@/b']"}), 16);
  EXPECT_THAT(
      harness.error({"-c", "@/a/main.yaml"}), HasSubstr("configuration file 'data/d' not found"));
  EXPECT_THAT(harness.error({"-cp", "@/a"}), HasSubstr("@/a/config.yaml"));
  EXPECT_THAT(
      harness.error({"-c", "@/a/main.yaml", "hydra.searchpath=['pkg://x']"}), HasSubstr("pkg://"));
}

}  // namespace hydra_test
}  // namespace lockstep::config
