// Tests the unchanged configuration tree of open-unlearning: composed as by hydra-core, and
// converted to configuration keys.
#include "config/compat/open_unlearning.h"

#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "config/harness.h"
#include "config/hydra/compose.h"
#include "config/hydra/interpolate.h"
#include "config/hydra/layers.h"
#include "shared_data.h"

namespace lockstep::config {
namespace open_unlearning_test {

using testing::HasSubstr;

std::filesystem::path tree() {
  return shared_data() / "unlearning" / "open-unlearning" / "configs";
}

/// Returns the composed tree as open-unlearning sees it, without machine-dependent values.
nlohmann::json composed(const std::string& name, const std::vector<std::string>& words) {
  std::vector<Override> overrides;
  for (const std::string& word : words) {
    overrides.push_back(parse_override(word));
  }
  Composition composition = compose({.file = tree() / name, .folders = {}}, std::move(overrides));
  Problems problems;
  EXPECT_TRUE(take_overrides(composition.tree, std::move(composition.overrides), problems).empty());
  problems.throw_if_any();
  RunFacts facts;
  facts.hydra["runtime.cwd"] = "here";
  Interpolator interpolator(composition.tree, [](const auto&) { return std::nullopt; }, facts);
  nlohmann::json result = nlohmann::json::object();
  for (const Entry& entry : composition.tree.entries) {
    if (entry.name != "hydra") {
      result[entry.name] =
          nlohmann::json::parse(to_json_text(interpolator.resolve(entry.value, {entry.name})));
    }
  }
  result["paths"].erase("work_dir");
  return result;
}

TEST(OpenUnlearning, ItsCommandsComposeAsHydraComposesThem) {
  SKIP_WITHOUT_SHARED_DATA("unlearning/golden/configs/commands.json");
  const auto folder = shared_data() / "unlearning" / "golden" / "configs";
  const nlohmann::json commands = read_json(folder / "commands.json");
  EXPECT_EQ(commands.size(), 12U);
  for (const auto& [name, command] : commands.items()) {
    const nlohmann::json wanted = read_json(folder / (name + ".json"));
    const nlohmann::json found = composed(command["config_name"], command["overrides"]);
    EXPECT_EQ(nlohmann::json::diff(wanted, found).dump(1), "[]") << name;
  }
}

/// A small open-unlearning tree and the files of a dataset.
class SmallTree : public testing::Test {
 protected:
  void SetUp() override {
    harness_.write(
        "tree/unlearn.yaml",
        "defaults:\n  - model: tiny\n  - trainer: NPO\n  - data: rows\n  - experiment: null\n  - "
        "_self_\n"
        "mode: unlearn\ntask_name: ???\nforget_split: forget01\n"
        "paths: {output_dir: \"saves/${task_name}\"}\n");
    harness_.write(
        "tree/model/tiny.yaml",
        "model_args: {pretrained_model_name_or_path: some/model, torch_dtype: bfloat16, "
        "attn_implementation: x}\n"
        "tokenizer_args: {pretrained_model_name_or_path: some/model}\n"
        "template_args: {apply_chat_template: False, user_start_tag: \"Q: \", user_end_tag: "
        "\"\\n\","
        " asst_start_tag: \"A: \", asst_end_tag: \"\\n\"}\n");
    harness_.write(
        "tree/trainer/NPO.yaml",
        "handler: NPO\nmethod_args: {beta: 0.2, alpha: 1.0, retain_loss_type: KL}\n"
        "args: {learning_rate: 1e-5, optim: paged_adamw_32bit, ddp_find_unused_parameters: None, "
        "do_eval: True, eval_strategy: epoch, warmup_epochs: 1.0, output_dir: "
        "\"${paths.output_dir}\"}\n");
    harness_.write(
        "tree/data/rows.yaml",
        "forget: {F: {handler: QADataset, args: {hf_args: {path: some/TOFU, name: "
        "\"${forget_split}\"},"
        " question_key: question, answer_key: answer, max_length: 512}}}\n"
        "retain: {R: {handler: QADataset, args: {hf_args: {path: json, data_files: "
        "kept.json}}}}\nanchor: retain\n");
    harness_.write(
        "tree/eval.yaml",
        "defaults:\n  - model: tiny\n  - _self_\nmode: eval\neval: {tofu: {handler: TOFUEvaluator, "
        "output_dir: out, batch_size: 7, forget_split: forget05, metrics: {model_utility: "
        "{handler: hm_aggregate}, "
        "forget_Q_A_ROUGE: {generation_args: {max_new_tokens: 20}}}}}\n");
    harness_.write("rows/forget01.jsonl", "{}\n");
  }
  std::vector<std::string> words(const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"-cp", "@/tree", "-cn", name});
    return more;
  }
  Harness harness_;
};

TEST_F(SmallTree, BecomesOurKeys) {
  const Resolution found = harness_.run(words(
      "unlearn.yaml",
      {"task_name=T",
       "unlearning.data_dir=@/rows",
       "trainer.method_args.beta=0.3",
       "parallel.zero_stage=2",
       "trainer.args.per_device_train_batch_size=4",
       "training.max_steps=5"}));
  const Config& config = found.config;
  EXPECT_EQ(config.task.type, "unlearning");
  EXPECT_EQ(config.model.path, "some/model");
  EXPECT_EQ(config.unlearning.method, "NPO");
  EXPECT_EQ(config.unlearning.beta, 0.3);
  EXPECT_EQ(config.unlearning.retain_loss, "KL");
  EXPECT_EQ(config.unlearning.compatibility, "upstream");
  EXPECT_EQ(config.unlearning.anchor, "retain");
  EXPECT_EQ(config.unlearning.user_start, "Q: ");
  EXPECT_EQ(config.unlearning.answer_start, "A: ");
  EXPECT_FALSE(config.unlearning.chat_template);
  EXPECT_EQ(config.unlearning.forget, std::vector{harness_.path("rows/forget01.jsonl")});
  EXPECT_EQ(config.unlearning.retain, std::vector<std::string>{"kept.json"});
  EXPECT_EQ(config.data.sequence_length, 513);
  EXPECT_EQ(config.training.output_dir, "saves/T");
  EXPECT_EQ(config.training.optim, "adamw_torch");
  EXPECT_EQ(config.training.eval_strategy, "no");
  EXPECT_EQ(config.training.warmup_epochs, 1.0);
  EXPECT_EQ(config.training.per_device_train_batch_size, 4);
  EXPECT_EQ(config.training.max_steps, 5);
  EXPECT_EQ(config.parallel.zero_stage, 2);
  EXPECT_TRUE(any_holds(found.warnings, "lockstep eval"));
}

TEST_F(SmallTree, HasOtherAnswers) {
  const Config config = harness_
                            .run(words(
                                "unlearn.yaml",
                                {"task_name=T",
                                 "unlearning.data_dir=@/rows",
                                 "trainer.handler=DPO",
                                 "data.forget.F.handler=QAwithIdkDataset",
                                 "+data.forget.F.args.idk_path=idk.jsonl"}))
                            .config;
  EXPECT_EQ(config.unlearning.method, "DPO");
  EXPECT_EQ(config.unlearning.refusals, "idk.jsonl");
  EXPECT_EQ(config.unlearning.question_key, "question");
  EXPECT_EQ(config.data.sequence_length, 513);
}

TEST_F(SmallTree, MayHavePlainTexts) {
  harness_.write("rows/raw/kept.jsonl", "{}\n");
  const Config config = harness_
                            .run(words(
                                "unlearn.yaml",
                                {"task_name=T",
                                 "unlearning.data_dir=@/rows",
                                 "data.forget.F.handler=PretrainingDataset",
                                 "+data.forget.F.args.text_key=text",
                                 "data.retain.R.handler=PretrainingDataset",
                                 "+data.retain.R.args.text_key=text",
                                 "~data.retain.R.args.hf_args.data_files",
                                 "data.retain.R.args.hf_args.path=some/MUSE",
                                 "+data.retain.R.args.hf_args.name=raw",
                                 "+data.retain.R.args.hf_args.split=kept"}))
                            .config;
  EXPECT_EQ(config.unlearning.text_key, "text");
  EXPECT_EQ(config.unlearning.retain, std::vector{harness_.path("rows/raw/kept.jsonl")});
}

TEST_F(SmallTree, MayHaveTextsWithPrefixes) {
  const std::vector<std::string> more{
      "task_name=T",
      "unlearning.data_dir=@/rows",
      "data.forget.F.handler=CompletionDataset",
      "+data.forget.F.args.prefix_key=prompt",
      "+data.forget.F.args.text_key=gt",
      "+data.forget.F.args.insert_space=True",
      "data.retain.R.handler=CompletionDataset",
      "+data.retain.R.args.text_key=gt"};
  const Config config = harness_.run(words("unlearn.yaml", more)).config;
  EXPECT_EQ(config.unlearning.text_key, "gt");
  EXPECT_EQ(config.unlearning.prefix_key, "prompt");
  EXPECT_TRUE(config.unlearning.insert_space);
}

/// Names of logged metrics are accepted without effect.
TEST_F(SmallTree, MayKeepRowsByAConstraint) {
  const Config config = harness_
                            .run(words(
                                "unlearn.yaml",
                                {"task_name=T",
                                 "unlearning.data_dir=@/rows",
                                 "trainer.handler=PDU",
                                 "~trainer.method_args.beta",
                                 "+trainer.method_args.retain_loss_eps=0.3",
                                 "+trainer.method_args.primal_dual=True",
                                 "+trainer.method_args.dual_step_size=2.0",
                                 "+trainer.method_args.dual_update_upon=epoch",
                                 "+trainer.method_args.dual_warmup_epochs=1",
                                 "+trainer.method_args.loss_names=[forget_loss,retain_loss]"}))
                            .config;
  EXPECT_EQ(config.unlearning.method, "PDU");
  EXPECT_EQ(config.unlearning.retain_loss_eps, 0.3);
  EXPECT_TRUE(config.unlearning.primal_dual);
  EXPECT_EQ(config.unlearning.dual_step_size, 2);
  EXPECT_EQ(config.unlearning.dual_update_upon, "epoch");
  EXPECT_EQ(config.unlearning.dual_warmup_epochs, 1);
}

TEST_F(SmallTree, IsEvaluated) {
  harness_.options.command = "eval";
  const Config config = harness_.run(words("eval.yaml", {})).config;
  EXPECT_EQ(config.task.type, "unlearning");
  EXPECT_EQ(
      config.unlearning.metrics, (std::vector<std::string>{"model_utility", "forget_Q_A_ROUGE"}));
  EXPECT_EQ(config.unlearning.forget_split, "forget05");
  EXPECT_EQ(config.unlearning.max_new_tokens, 20);
  EXPECT_EQ(config.training.output_dir, "out");
  EXPECT_EQ(config.training.per_device_eval_batch_size, 7);
  EXPECT_TRUE(config.training.bf16);
}

TEST_F(SmallTree, StatesAtALayer) {
  harness_.write(
      "tree/trainer/RMU.yaml",
      "handler: RMU\nmethod_args: {gamma: 1.0, steering_coeff: 3, retain_loss_type: EMBED_DIFF, "
      "alpha: 1, module_regex: model\\.layers\\.5, trainable_params_regex: [\".*\"]}\n"
      "args: {learning_rate: 1e-5}\n");
  const Config config =
      harness_
          .run(words("unlearn.yaml", {"task_name=T", "trainer=RMU", "unlearning.data_dir=@/rows"}))
          .config;
  EXPECT_EQ(config.unlearning.method, "RMU");
  EXPECT_EQ(config.unlearning.steering_coeff, 3);
  EXPECT_EQ(config.unlearning.module_regex, "model\\.layers\\.5");
  EXPECT_EQ(config.unlearning.trainable_params_regex, std::vector<std::string>{".*"});
  EXPECT_EQ(config.unlearning.retain_loss, "EMBED_DIFF");
}

TEST_F(SmallTree, MeasuresARunWhereItsFilesAre) {
  harness_.write("rows/forget01_perturbed.jsonl", "{}\n");
  const auto run = [&](std::vector<std::string> more) {
    more.insert(
        more.end(),
        {"task_name=T",
         "unlearning.data_dir=@/rows",
         "+eval.tofu.forget_split=forget01",
         "+eval.tofu.handler=TOFUEvaluator",
         "+eval.tofu.metrics.model_utility.handler=hm_aggregate"});
    return harness_.run(words("unlearn.yaml", std::move(more))).config;
  };
  const Config config = run({});
  EXPECT_EQ(config.training.eval_strategy, "epoch");
  EXPECT_EQ(config.unlearning.metrics, std::vector<std::string>{"model_utility"});
  EXPECT_EQ(config.training.output_dir, "saves/T");
  EXPECT_EQ(config.unlearning.forget_split, "forget01");
}

TEST_F(SmallTree, MusesEvaluation) {
  harness_.write(
      "tree/muse.yaml",
      "defaults:\n  - model: tiny\n  - _self_\nmode: eval\neval: {muse: {handler: MUSEEvaluator, "
      "output_dir: out, data_split: News, retain_logs_path: logs.json, metrics: {privleak: "
      "{handler: "
      "privleak}, forget_knowmem_ROUGE: {generation_args: {max_new_tokens: 32}}}}}\n");
  harness_.write("rows/verbmem/forget.jsonl", "{}\n");
  const Config config = harness_.run(words("muse.yaml", {"unlearning.data_dir=@/rows"})).config;
  EXPECT_EQ(config.unlearning.benchmark, "muse");
  EXPECT_EQ(
      config.unlearning.metrics, (std::vector<std::string>{"privleak", "forget_knowmem_ROUGE"}));
  EXPECT_EQ(config.unlearning.retain_logs_path, "logs.json");
  EXPECT_EQ(config.unlearning.max_new_tokens, 200);
  EXPECT_EQ(config.unlearning.answer_end, "\n");
}

TEST_F(SmallTree, TellsWhatItCannotTake) {
  const auto told = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"task_name=T", "unlearning.data_dir=@/rows"});
    return harness_.error(words("unlearn.yaml", std::move(more)));
  };
  EXPECT_THAT(told({"trainer.handler=PDU"}), HasSubstr("unlearning.retain_loss_eps=0.3"));
  EXPECT_THAT(
      told({"data.retain.R.handler=PretrainingDataset"}),
      HasSubstr("use datasets of the same kind"));
  EXPECT_THAT(told({"trainer.handler=NOP"}), HasSubstr("Did you mean 'NPO'?"));
  EXPECT_THAT(
      told({"+trainer.method_args.delta=1"}),
      HasSubstr("remove it with ~trainer.method_args.delta"));
  EXPECT_THAT(told({"forget_split=forget77"}), HasSubstr("rows forget77 of some/TOFU"));
  EXPECT_THAT(told({"trainer.argz=1"}), HasSubstr("both in the tree and in Lockstep"));
  EXPECT_THAT(
      told({"+data.forget.stray.args.x=1"}), HasSubstr("2 datasets instead of one: F, stray"));
}

}  // namespace open_unlearning_test
}  // namespace lockstep::config
