// Tests rules that combine several keys: message, location and hint. Each test then follows the
// hint and expects no further error.
#include <gmock/gmock.h>

#include "config/harness.h"

namespace lockstep::config {
namespace rules_test {

using testing::HasSubstr;

struct Rule {
  std::vector<std::string> given;
  const char* said;
  const char* remedy;
  std::vector<std::string> mended;  // arguments changed as in the hint
  bool is_of_what_is_missing = false;
};

void expect_rules(const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    const std::string all = testing::PrintToString(rule.given);
    const std::string text = Harness().error(rule.given);
    EXPECT_THAT(text, HasSubstr(rule.said)) << all;
    EXPECT_THAT(text, HasSubstr(rule.remedy)) << all;
    if (!rule.is_of_what_is_missing) {
      EXPECT_THAT(text, HasSubstr("(command line: ")) << all;
    }
    EXPECT_EQ(Harness().error(rule.mended), "") << all;
  }
}

TEST(Rules, OfMixtures) {
  const auto mixture = [](const char* sources) {
    return std::vector<std::string>{std::string("data.mixture=") + sources};
  };
  const std::vector<std::string> good = mixture("[{name: a, files: [x], weight: 1}]");
  expect_rules({
      {{"data.mixture=[{name: a, files: [x], weight: 1}]", "data.train=t.txt"},
       "data.mixture replaces it",
       "the files of data.train can be a source",
       good},
      {{"data.mixture=[{name: a, files: [x], weight: 1}]", "task.type=preference"},
       "not supported with task.type=preference",
       "use data.train",
       {"data.train=t.jsonl", "task.type=preference"}},
      {mixture("[{name: a, files: [], weight: 1}]"), "source 'a' has no files", "set files", good},
      {mixture("[{name: a, files: [''], weight: 1}]"),
       "source 'a' has no files",
       "files: [FILE, ...]",
       good},
      {mixture("[{name: a, files: [x], weight: -1}]"),
       "source 'a': weight -1 must be at least 0",
       "0.7 and 0.3, or 7 and 3",
       good},
      {mixture("[{name: a, files: [x], weight: 0}, {name: b, files: [y], weight: 0}]"),
       "the weights sum to 0",
       "the weight of a source above 0",
       mixture("[{name: a, files: [x], weight: 0}, {name: b, files: [y], weight: 1}]")},
      {mixture("[{name: a, files: [x], weight: 1}, {name: a, files: [y], weight: 1}]"),
       "source 'a' is listed twice",
       "give each source a unique name",
       mixture("[{name: a, files: [x], weight: 1}, {name: b, files: [y], weight: 1}]")},
      {mixture("[{name: a, files: [x], weight: 1, max_epochs: 0}]"),
       "max_epochs 0 must be at least 1",
       "remove the source, or remove max_epochs",
       mixture("[{name: a, files: [x], weight: 1, max_epochs: 1}]")},
  });
}

TEST(Rules, OfDataFiles) {
  expect_rules({
      {{"data.train=t.txt", "data.validation_fraction=0.6", "data.test_fraction=0.4"},
       "0.6 and data.test_fraction 0.4 leave nothing to train on",
       "their sum must be below 1",
       {"data.train=t.txt", "data.validation_fraction=0.5", "data.test_fraction=0.4"}},
      {{"data.train=['']"}, "a file name is empty", "data.train", {"data.train=[t.txt]"}},
      {{"data.validation=[v.txt,'']"},
       "a file name is empty",
       "data.validation",
       {"data.validation=[v.txt]"}},
      {{"data.validation_mm=v.tsv", "task.type=masked_lm"},
       "only used with task.type=sequence_classification",
       "set data.validation or data.test to the files",
       {"data.validation=v.tsv", "task.type=masked_lm"}},
      {{"data.test_mm=t.tsv", "task.type=language_modeling"},
       "only used with task.type=sequence_classification",
       "set data.validation or data.test to the files",
       {"data.test_mm=t.tsv", "task.type=sequence_classification"}},
  });
}

TEST(Rules, OfLabels) {
  const std::string classifies = "task.type=sequence_classification";
  expect_rules({
      {{classifies, "data.label_field=['']"},
       "a field name is empty",
       "data.label_field=label",
       {classifies, "data.label_field=label"}},
      {{classifies, "data.label_field=[a,b,a]"},
       "\"a\" is listed twice",
       "remove one",
       {classifies, "data.label_field=[a,b]"}},
      {{classifies, "data.label_field=[a,b]", "data.label_delimiter=';'"},
       "only used with one label field",
       "remove it, or set one field",
       {classifies, "data.label_field=a", "data.label_delimiter=';'"}},
      {{classifies, "data.label_field=[a,b]", "task.problem_type=single_label_classification"},
       "a single label requires one field",
       "task.problem_type=multi_label_classification or regression",
       {classifies, "data.label_field=[a,b]", "task.problem_type=regression"}},
      {{classifies, "data.label_field=[a,b]", "task.labels=[x,y,z]"},
       "3 labels for 2 fields",
       "list one label per field",
       {classifies, "data.label_field=[a,b]", "task.labels=[x,y]"}},
      {{classifies, "task.labels=[a,'']"},
       "a label name is empty",
       "set its name, or remove it",
       {classifies, "task.labels=[a,b]"}},
      {{classifies, "task.problem_type=regression", "task.class_weights=balanced"},
       "must be empty: regression has no labels",
       "task.class_weights",
       {classifies, "task.problem_type=regression"}},
      {{classifies, "task.problem_type=regression", "training.label_smoothing_factor=0.1"},
       "requires a single label per row, not regression",
       "set it to 0",
       {classifies, "task.problem_type=regression", "training.label_smoothing_factor=0"}},
      {{classifies, "task.problem_type=multi_label_classification", "label_smoothing_factor=0.1"},
       "per row, not multi_label_classification",
       "set it to 0",
       {classifies, "task.problem_type=single_label_classification", "label_smoothing_factor=0.1"}},
      {{classifies, "data.long_documents=split"},
       "always truncates rows at data.sequence_length",
       "remove it",
       {classifies, "data.long_documents=truncate"}},
      {{classifies, "task.class_weights=[balanced,1]"},
       "'balanced' is not a weight",
       "use balanced, one non-negative number per label",
       {classifies, "task.class_weights=balanced"}},
      {{classifies, "task.class_weights=[1,inf]"},
       "is not a weight",
       "one non-negative number per label",
       {classifies, "task.class_weights=[1,0]"}},
  });
  // A multi-label classifier may have one label.
  EXPECT_EQ(
      Harness().error(
          {classifies, "task.labels=[spam]", "task.problem_type=multi_label_classification"}),
      "");
}

TEST(Rules, OfLabelsThatAreWritten) {
  const std::string writes = "task.type=generative_classification";
  const std::string instead = "remove it, or use task.type=sequence_classification";
  const std::vector<std::string> mended = {writes};
  const char* remedy = instead.c_str();
  expect_rules({
      {{writes, "task.problem_type=regression"},
       "generative classification has one label per row",
       remedy,
       mended},
      {{writes, "task.class_weights=balanced"},
       "all tokens of a label have the same weight",
       remedy,
       mended},
      {{writes, "task.focal_gamma=2"},
       "the language modeling loss has no focal factor",
       remedy,
       mended},
      {{writes, "data.label_field=[a,b]"},
       "generative classification has one label field",
       remedy,
       mended},
      {{writes, "data.prompt=alpaca"},
       "generative.prompt_template defines the prompt",
       remedy,
       mended},
      {{writes, "data.packing=concatenate"}, "concatenation would cut off labels", remedy, mended},
      {{writes, "generative.decode=greedy", "generative.normalize=token"},
       "none with generative.decode=greedy",
       "compares tokens, not likelihoods",
       {writes, "generative.decode=greedy", "generative.normalize=none"}},
      {{writes, "generative.verbalizers=[good,bad]"},
       "requires task.labels, which defines their order",
       "set both",
       {writes, "generative.verbalizers=[good,bad]", "task.labels=[pos,neg]"}},
  });
}

TEST(Rules, OfPlans) {
  expect_rules({
      {{"parallel.pipeline=2", "parallel.zero_stage=2"},
       "2 with a pipeline reduces the gradients in every micro-batch",
       "parallel.zero_stage=1, or set parallel.zero_in_pipeline=true",
       {"parallel.pipeline=2", "parallel.zero_stage=2", "parallel.zero_in_pipeline=true"}},
      {{"parallel.pipeline=2", "parallel.zero_stage=3"},
       "(and gathers the parameters twice)",
       "use parallel.zero_stage=1",
       {"parallel.pipeline=2", "parallel.zero_stage=1"}},
      {{"parallel.pipeline=2", "parallel.split='3,4,5'"},
       "'3,4,5' is not a split into 2 stages",
       "the layers of each stage",
       {"parallel.pipeline=2", "parallel.split='3,4'"}},
      {{"parallel.pipeline=2", "parallel.split='3,-4'"},
       "'3,-4' is not a split",
       "use auto, parameters",
       {"parallel.pipeline=2", "parallel.split=parameters"}},
      {{"parallel.pipeline=2", "parallel.split='3,'"},
       "'3,' is not a split",
       "use auto, parameters",
       {"parallel.pipeline=2", "parallel.split='3,0'"}},
      {{"parallel.zero_stage=1",
        "parallel.offload_optimizer.device=nvme",
        "parallel.offload_optimizer.path=''"},
       "device=nvme requires a folder",
       "set path",
       {"parallel.zero_stage=1",
        "parallel.offload_optimizer.device=nvme",
        "parallel.offload_optimizer.path=/ssd"}},
      {{"parallel.zero_stage=1", "parallel.offload_param.device=cpu"},
       "parameter offloading requires zero_stage=3, not 1",
       "set parallel.zero_stage=3, or use parallel.offload_optimizer",
       {"parallel.zero_stage=3", "parallel.offload_param.device=cpu"}},
      {{"precision.stochastic_rounding=true"},
       "only used with bfloat16 weights",
       "set training.bf16=true",
       {"precision.stochastic_rounding=true", "bf16=true"}},
  });
  // Virtual stages: the split lists every stage of every rank.
  EXPECT_EQ(Harness().error({"parallel.pipeline=2", "parallel.split='1,2,3,4'"}), "");
  // A path is a schedule file, even if its name is close to that of a schedule.
  EXPECT_EQ(Harness().error({"parallel.pipeline=2", "parallel.schedule=./1f1"}), "");
}

TEST(Rules, OfWorldSizes) {
  Harness harness;
  const auto error = [&](int64_t ranks, std::vector<std::string> arguments) {
    harness.options.ranks = ranks;
    return harness.error(arguments);
  };
  EXPECT_THAT(
      error(8, {"parallel.zero_stage=1", "parallel.shard_ranks=3"}),
      testing::AllOf(
          HasSubstr("3 does not divide the 8 ranks with the same parameters"),
          HasSubstr("use a divisor")));
  EXPECT_THAT(
      error(8, {"parallel.tensor=2", "parallel.zero_stage=1", "parallel.shard_ranks=8"}),
      HasSubstr("8 does not divide the 4 ranks"));
  EXPECT_EQ(error(8, {"parallel.tensor=2", "parallel.zero_stage=1", "parallel.shard_ranks=2"}), "");
  EXPECT_THAT(error(8, {"parallel.expert=3"}), HasSubstr("3 does not divide the 8 data- and"));
  EXPECT_EQ(error(8, {"parallel.expert=4"}), "");
  EXPECT_THAT(error(6, {"parallel.tensor=4"}), HasSubstr("6"));
  EXPECT_EQ(error(6, {"parallel.tensor=3"}), "");
}

TEST(Rules, OfAdaptersAndPackedWeights) {
  expect_rules({
      {{"lora.adapter=folder", "lora.r=8"},
       "folder already defines the adapter, but other keys of lora are set too",
       "only lora.lora_dropout can be changed",
       {"lora.adapter=folder", "lora.lora_dropout=0.1"}},
      {{"quantization.type=nf4"},
       "is required with other keys of quantization",
       "add bits=4 or bits=8",
       {"quantization.type=nf4", "quantization.bits=4"},
       true},
      {{"quantization.bits=8", "quantization.double_quant=true"},
       "8-bit quantization has no type, block size or double quantization",
       "remove these keys",
       {"quantization.bits=8"}},
      {{"quantization.bits=4", "quantization.bnb_4bit_compute_dtype=bfloat16"},
       "bfloat16 does not match the training type float32",
       "set training.bf16=true or fp16=true",
       {"quantization.bits=4", "quantization.bnb_4bit_compute_dtype=bfloat16", "bf16=true"}},
      {{"quantization.load_in_4bit=true", "quantization.bits=8"},
       "contradicts quantization.bits: they are the same setting",
       "set only one of them",
       {"quantization.load_in_4bit=true", "quantization.bits=4"}},
      {{"quantization.bits=4", "quantization.type=nf4", "quantization.bnb_4bit_quant_type=fp4"},
       "contradicts quantization.type",
       "set only one of them",
       {"quantization.bits=4", "quantization.type=fp4", "quantization.bnb_4bit_quant_type=fp4"}},
  });
}

TEST(Rules, OfOptimizersAndSchedules) {
  expect_rules({
      {{"muon_learning_rate=0.1"},
       "is only used with training.optim=muon, not adamw",
       "set training.optim=muon",
       {"muon_learning_rate=0.1", "optim=muon"}},
      {{"learning_rate=0", "training.learning_rates={embed: 1e-4}"},
       "which are scaled relative to it",
       "use training.learning_rates to set the rate of parameters that do not change to 0",
       {"learning_rate=1e-4", "training.learning_rates={embed: 0}"}},
      {{"lr_scheduler_type=polynomial", "learning_rate=1e-8"},
       "1e-07 must be below learning_rate 1e-08",
       "increase training.learning_rate, or reduce lr_end",
       {"lr_scheduler_type=polynomial", "learning_rate=1e-8", "lr_scheduler_kwargs.lr_end=0"},
       true},
      {{"lr_scheduler_type=constant", "lr_scheduler_kwargs.power=1"},
       "lr_scheduler_type=constant does not use it",
       "it has no arguments",
       {"lr_scheduler_type=polynomial", "lr_scheduler_kwargs.power=1"}},
      {{"lr_scheduler_type=cosine_with_min_lr",
        "lr_scheduler_kwargs.min_lr=1e-6",
        "lr_scheduler_kwargs.min_lr_rate=0.1"},
       "requires either min_lr or min_lr_rate",
       "min_lr",
       {"lr_scheduler_type=cosine_with_min_lr", "lr_scheduler_kwargs.min_lr=1e-6"}},
      {{"bf16_full_eval=true", "fp16_full_eval=true", "bf16=true"},
       "bf16_full_eval is also set",
       "set only one of them",
       {"bf16_full_eval=true", "bf16=true"}},
      {{"report_to=trackio"},
       "'trackio' is not one of none, all, tensorboard, wandb, mlflow",
       "trackio.import_tf_events",
       {"report_to=tensorboard"}},
      {{"report_to=aim"}, "'aim' is not one of", "aim convert tensorboard", {"report_to=none"}},
      {{"report_to=comet_ml"}, "'comet_ml' is not one of", "metrics.jsonl", {"report_to=mlflow"}},
      {{"monitor.histograms=10", "report_to=wandb"},
       "histograms are written to TensorBoard files",
       "set report_to=tensorboard",
       {"monitor.histograms=10", "report_to=[wandb,tensorboard]"}},
      {{"early_stopping_patience=2"},
       "early stopping requires evaluations",
       "set training.eval_strategy=epoch, or steps",
       {"early_stopping_patience=2",
        "eval_strategy=epoch",
        "data.validation=v.txt",
        "load_best_model_at_end=true",
        "save_strategy=epoch"}},
      {{"eval_on_start=true"},
       "training.eval_on_start",
       "data.validation_fraction=0.05",
       {"eval_on_start=true", "data.validation_fraction=0.05"}},
      {{"train_sampling_strategy=group_by_length",
        "data.mixture=[{name: a, files: [x], weight: 1}]"},
       "group_by_length is not supported with data.mixture",
       "set training.train_sampling_strategy=random",
       {"train_sampling_strategy=group_by_length", "data.train=t.txt"}},
      {{"do_eval=true"},
       "evaluation data is required",
       "set data.validation=FILE",
       {"do_eval=true", "data.validation=v.txt"}},
  });
}

}  // namespace rules_test
}  // namespace lockstep::config
