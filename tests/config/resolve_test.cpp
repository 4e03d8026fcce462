// Tests resolving command lines to configurations.
#include "config/resolve.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "config/core/trainer_keys.h"
#include "config/core/unsupported_keys.h"
#include "config/harness.h"
#include "config/print.h"

namespace lockstep::config {
namespace resolve_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Resolve, WithoutArgumentsEverythingIsTheDefault) {
  const Harness harness;
  const Resolution result = harness.run({});
  EXPECT_EQ(to_yaml(result.config), to_yaml(Config{}));
  EXPECT_THAT(result.origins, IsEmpty());
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST(Resolve, TakesEveryWayOfWritingAKey) {
  const Harness harness;
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"training.per_device_train_batch_size=4"},
           {"per_device_train_batch_size=4"},
           {"trainer.args.per_device_train_batch_size=4"},
           {"++trainer.args.per_device_train_batch_size=4"},
           {"+training.per_device_train_batch_size=4"},
           {"per_gpu_train_batch_size=4"},
           {"--per_device_train_batch_size", "4"},
           {"--per-device-train-batch-size", "4"},
           {"--per_device_train_batch_size=4"},
           {"--per-device-train-batch-size=4"},
           {"--training.per_device_train_batch_size", "4"},
           {"--training.per-device-train-batch-size=4"},
           {"--trainer.args.per_device_train_batch_size", "4"},
           {"--per_gpu_train_batch_size", "4"}}) {
    const Resolution result = harness.run(arguments);
    EXPECT_EQ(result.config.training.per_device_train_batch_size, 4) << arguments[0];
    EXPECT_EQ(
        harness.origin(result, "training.per_device_train_batch_size"),
        "command line: " + arguments[0] + (arguments.size() > 1 ? " 4" : ""));
  }
}

TEST(Resolve, TheLastOfTheCommandLineWins) {
  const Harness harness;
  EXPECT_EQ(harness.run({"seed=1", "--seed", "2", "training.seed=3"}).config.training.seed, 3);
  EXPECT_EQ(harness.run({"training.seed=3", "--seed=2"}).config.training.seed, 2);
}

TEST(Resolve, BooleanFlagsAreReadAsHfArgumentParserDoes) {
  const Harness harness;
  EXPECT_TRUE(harness.run({"--bf16"}).config.training.bf16);
  EXPECT_TRUE(harness.run({"--bf16", "seed=2"}).config.training.bf16);
  for (const char* word : {"yes", "true", "t", "y", "1", "True", "YES"}) {
    EXPECT_TRUE(harness.run({"--bf16", word}).config.training.bf16) << word;
    EXPECT_TRUE(harness.run({std::string("--bf16=") + word}).config.training.bf16) << word;
  }
  for (const char* word : {"no", "false", "f", "n", "0", "False"}) {
    EXPECT_FALSE(harness.run({"--bf16", word}).config.training.bf16) << word;
  }
}

TEST(Resolve, DeniesBooleansWithNo) {
  const Harness harness;
  EXPECT_FALSE(harness.run({"bf16=true", "--no_bf16"}).config.training.bf16);
  EXPECT_FALSE(harness.run({"bf16=true", "--no-bf16"}).config.training.bf16);
  EXPECT_FALSE(harness.run({"--data.no_append_eos"}).config.data.append_eos);
  EXPECT_TRUE(harness.run({"--no_cuda"}).config.training.use_cpu);
  EXPECT_THAT(harness.error({"--bf16=maybe"}), HasSubstr("maybe is not true or false"));
}

TEST(Resolve, OptionalBooleansAndNulls) {
  const Harness harness;
  EXPECT_EQ(harness.run({"--tf32"}).config.training.tf32, true);
  EXPECT_EQ(harness.run({"--tf32", "false"}).config.training.tf32, false);
  EXPECT_EQ(harness.run({"tf32=true", "tf32=null"}).config.training.tf32, std::nullopt);
  EXPECT_EQ(harness.run({"--data_seed", "None"}).config.training.data_seed, std::nullopt);
  EXPECT_EQ(harness.run({"data_seed=7"}).config.training.data_seed, 7);
  // null sets a key that cannot be null to its default.
  EXPECT_EQ(harness.run({"max_grad_norm=null"}).config.training.max_grad_norm, 1.0);
}

TEST(Resolve, ListsAreGivenInEveryForm) {
  const Harness harness;
  const auto train = [&](const std::vector<std::string>& arguments) {
    return harness.run(arguments).config.data.train;
  };
  EXPECT_THAT(train({"data.train=a.txt"}), ElementsAre("a.txt"));
  EXPECT_THAT(train({"data.train=[a.txt, b.txt]"}), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(
      train({"--data.train", "a.txt", "b c.txt", "--seed", "1"}), ElementsAre("a.txt", "b c.txt"));
  EXPECT_THAT(train({"--data.train", "a.txt", "b.txt", "seed=1"}), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(train({"--data.train=[a.txt,b.txt]"}), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(train({"data.train=[a,b]", "data.train.1=c"}), ElementsAre("a", "c"));
  EXPECT_THAT(train({"data.train=[a,b]", "data.train[0]=c"}), ElementsAre("c", "b"));
  EXPECT_THAT(train({"--train_file", "x.jsonl"}), ElementsAre("x.jsonl"));
}

TEST(Resolve, MapsAreGivenInEveryForm) {
  const Harness harness;
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"lr_scheduler_kwargs={num_cycles: 2}"},
           {"lr_scheduler_kwargs.num_cycles=2"},
           {"--lr_scheduler_kwargs", "{\"num_cycles\": 2}"},
           {"--lr_scheduler_kwargs={num_cycles:2}"},
           {"--lr_scheduler_kwargs.num_cycles", "2"}}) {
    std::vector<std::string> all = arguments;
    all.emplace_back("lr_scheduler_type=cosine_with_restarts");
    EXPECT_EQ(harness.run(all).config.training.lr_scheduler_kwargs.num_cycles, 2.0) << arguments[0];
  }
  // As in Hydra, a map is merged, a list replaced.
  const auto merged = harness.run(
      {"lr_scheduler_type=polynomial",
       "lr_scheduler_kwargs={power: 2}",
       "lr_scheduler_kwargs={lr_end: 1e-9}"});
  EXPECT_EQ(merged.config.training.lr_scheduler_kwargs.power, 2.0);
  EXPECT_EQ(merged.config.training.lr_scheduler_kwargs.lr_end, 1e-9);
}

TEST(Resolve, NumbersAndNegativeValues) {
  const Harness harness;
  EXPECT_EQ(harness.run({"--max_steps", "-1"}).config.training.max_steps, -1);
  EXPECT_EQ(harness.run({"max_steps=1e3"}).config.training.max_steps, 1000);
  EXPECT_EQ(harness.run({"--learning_rate", "5e-5"}).config.training.learning_rate, 5e-5);
  EXPECT_EQ(harness.run({"warmup_steps=0.03"}).config.training.warmup_steps, 0.03);
  EXPECT_THAT(harness.error({"max_steps=1.5"}), HasSubstr("1.5 is not an integer"));
  EXPECT_THAT(harness.error({"seed=99999999999999999999"}), HasSubstr("is not an integer"));
  EXPECT_THAT(harness.error({"learning_rate=fast"}), HasSubstr("fast is not a number"));
}

TEST(Resolve, AWholeArgumentFile) {
  const Harness harness;
  harness.write(
      "args.json",
      "{\n  \"output_dir\": \"out\",\n  \"learning_rate\": 1e-4,\n  \"bf16\": true,\n"
      "  \"eval_strategy\": \"no\",\n  \"model_name_or_path\": \"gpt2\",\n  \"report_to\": []\n}");
  const Resolution result = harness.run({"@/args.json"});
  EXPECT_EQ(result.config.training.output_dir, "out");
  EXPECT_EQ(result.config.training.learning_rate, 1e-4);
  EXPECT_TRUE(result.config.training.bf16);
  EXPECT_EQ(result.config.model.path, "gpt2");
  EXPECT_EQ(harness.origin(result, "training.learning_rate"), "@/args.json:3");
  harness.write("args.yaml", "output_dir: out2\ntraining:\n  learning_rate: 1e-4\n");
  EXPECT_EQ(harness.run({"@/args.yaml", "seed=9"}).config.training.output_dir, "out2");
  EXPECT_EQ(harness.run({"-c", "@/args.yaml"}).config.training.output_dir, "out2");
  EXPECT_EQ(harness.run({"--config=@/args.yaml"}).config.training.output_dir, "out2");
  EXPECT_THAT(harness.error({"@/none.yaml"}), HasSubstr("No such file"));
  EXPECT_THAT(harness.error({"-c", "@/args.yaml", "@/args.json"}), HasSubstr("already"));
}

TEST(Resolve, ClassificationScriptsArgumentsAreTakenAsTheyStand) {
  const Harness harness;
  const Resolution result = harness.run(
      {"--model_name_or_path",
       "gpt2",
       "--train_file",
       "a.csv",
       "--validation_file",
       "b.csv",
       "--label_column_name",
       "gold",
       "--text_column_names",
       "body",
       "--max_seq_length",
       "64",
       "--do_regression",
       "True",
       "--metric_name",
       "mse",
       "--ignore_mismatched_sizes",
       "--do_train",
       "--do_eval",
       "--shuffle_train_dataset",
       "--preprocessing_num_workers",
       "4"});
  const Config& config = result.config;
  EXPECT_EQ(config.data.label_field, std::vector<std::string>{"gold"});
  EXPECT_EQ(config.data.text_field, "body");
  EXPECT_EQ(config.data.sequence_length, 64);
  EXPECT_EQ(config.task.problem_type, "regression");
  EXPECT_FALSE(harness.run({"--do_regression", "false"}).config.task.problem_type);
  EXPECT_EQ(config.task.type, "sequence_classification");
  EXPECT_EQ(
      harness.run({"--train_file", "a.csv", "--max_train_samples", "5"}).config.data.train,
      std::vector<std::string>{"a.csv[:5]"});
  EXPECT_EQ(
      harness.run({"data.train=[a.csv,b,c.csv]", "--max_train_samples", "5"}).config.data.train,
      std::vector<std::string>{"{a.csv,b,c.csv}[:5]"});
  EXPECT_THAT(harness.error({"--max_train_samples", "5"}), HasSubstr("requires data.train"));
  EXPECT_THAT(
      harness.error({"--train_file", "a.csv[:9]", "--max_train_samples", "5"}),
      HasSubstr("already a slice"));
  EXPECT_THAT(
      harness.error({"--train_file", "a.csv", "--max_train_samples", "0"}),
      HasSubstr("not a number of rows"));
}

TEST(Resolve, TasksOfGlueSayWhatIsRead) {
  const Harness harness;
  const Config mnli =
      harness.run({"--task_name", "MNLI", "--train_file", "a.csv", "--text_column_names", "p"})
          .config;
  EXPECT_EQ(mnli.task.type, "sequence_classification");
  EXPECT_EQ(mnli.data.text_field, "p");
  EXPECT_EQ(mnli.data.text_pair_field, "hypothesis");
  EXPECT_TRUE(mnli.data.dataset_name.empty());
  EXPECT_EQ(
      harness.run({"--task_name", "stsb", "--train_file", "a.csv"}).config.task.problem_type,
      "regression");
  EXPECT_THAT(harness.error({"--task_name", "sst"}), HasSubstr("Did you mean 'sst2'?"));
  // A variable named task_name in a file does not select a GLUE task.
  harness.write(
      "named.yaml",
      "task_name: sst2\noutput_dir: runs/${task_name}\ndata: {train: a.txt}\n"
      "model: {preset: gpt2}\ntraining: {max_steps: 1}\n");
  EXPECT_FALSE(harness.run({"-c", "@/named.yaml"}).config.task.type);
}

TEST(Resolve, YamlWordsAreWhatTheFieldNeeds) {
  const Harness harness;
  harness.write(
      "a.yaml",
      "training:\n  eval_strategy: no\n  save_strategy: \"no\"\n  bf16: yes\n  run_name: 007\n"
      "  seed: 1_000\n  learning_rate: \"1e-4\"\n  resume_from_checkpoint: false\n"
      "tokenizer:\n  path: null\n");
  const Config config = harness.run({"-c", "@/a.yaml"}).config;
  EXPECT_EQ(config.training.eval_strategy, "no");
  EXPECT_EQ(config.training.save_strategy, "no");
  EXPECT_TRUE(config.training.bf16);
  EXPECT_EQ(config.training.run_name, "007");
  EXPECT_EQ(config.training.seed, 1000);
  EXPECT_EQ(config.training.learning_rate, 1e-4);
  EXPECT_FALSE(config.training.resume_from_checkpoint);
  EXPECT_EQ(
      harness.run({"resume_from_checkpoint=True"}).config.training.resume_from_checkpoint, "true");
  EXPECT_EQ(
      harness.run({"--resume_from_checkpoint", "o/checkpoint-5"})
          .config.training.resume_from_checkpoint,
      "o/checkpoint-5");
}

TEST(Resolve, UnknownKeysAreErrorsWithTheNearestName) {
  const Harness harness;
  harness.write("a.yaml", "training:\n  learning_rte: 1\nmodle:\n  path: x\n");
  const std::string text =
      harness.error({"-c", "@/a.yaml", "sede=1", "--bf61", "--sequence_length", "8"});
  EXPECT_THAT(text, HasSubstr("the configuration has 5 problems"));
  EXPECT_THAT(
      text,
      HasSubstr("training.learning_rte (@/a.yaml:2): unknown key. Did you mean "
                "'training.learning_rate'?"));
  EXPECT_THAT(text, HasSubstr("modle (@/a.yaml:3): unknown key. Did you mean 'model'?"));
  EXPECT_THAT(text, HasSubstr("sede (command line: sede=1): unknown key. Did you mean 'seed'?"));
  EXPECT_THAT(text, HasSubstr("--bf61: unknown flag or key. Did you mean '--bf16'?"));
  EXPECT_THAT(text, HasSubstr("Did you mean '--data.sequence_length'?"));
}

TEST(Resolve, UnknownKeysMayBeLeftOutOnRequest) {
  const Harness harness;
  harness.write("a.yaml", "training:\n  learning_rte: 1\n  seed: 3\nother: {a: 1}\n");
  const Resolution result = harness.run({"-c", "@/a.yaml", "--allow-unknown-config"});
  EXPECT_EQ(result.config.training.seed, 3);
  EXPECT_EQ(result.warnings.size(), 2U);
}

TEST(Resolve, WordsThatAreNothingAreExplained) {
  const Harness harness;
  EXPECT_THAT(harness.error({"foo"}), HasSubstr("foo: unexpected argument"));
  EXPECT_THAT(harness.error({"--seed"}), HasSubstr("--seed: a value is required"));
  EXPECT_THAT(harness.error({"--seed", "--bf16"}), HasSubstr("--seed: a value is required"));
  EXPECT_THAT(harness.error({"-x"}), HasSubstr("-x: unknown flag"));
  EXPECT_THAT(harness.error({"seed=1,2"}), HasSubstr("sweep"));
  EXPECT_THAT(harness.error({"--multirun", "seed=1"}), HasSubstr("sweep"));
  EXPECT_THAT(harness.error({"model=gpt2"}), HasSubstr("model.path=gpt2"));
  EXPECT_THAT(harness.error({"+seed=1", "+seed=2"}), HasSubstr("already has a value: 1"));
  EXPECT_THAT(harness.error({"~seed"}), HasSubstr("nothing to delete"));
  EXPECT_EQ(harness.run({"seed=5", "~seed=5"}).config.training.seed, 42);
  EXPECT_THAT(harness.error({"seed=5", "~seed=6"}), HasSubstr("the value is 5, not 6"));
}

TEST(Resolve, TheFlagsOfACommand) {
  Harness harness;
  using Kind = Flag::Kind;
  harness.options.flags = {
      {"nproc", Kind::kValue, "ranks"},
      {"dry-run", Kind::kSwitch, "check alone"},
      {"model", Kind::kKey, "the model", "model.path"},
      {"data", Kind::kKey, "the text", "data.validation"}};
  const Resolution result =
      harness.run({"--model", "dir", "--data", "a.txt", "b.txt", "--dry_run", "--nproc=2"});
  EXPECT_EQ(result.config.model.path, "dir");
  EXPECT_THAT(result.config.data.validation, ElementsAre("a.txt", "b.txt"));
  EXPECT_TRUE(result.has("dry-run"));
  EXPECT_EQ(result.integer("nproc", 1), 2);
  EXPECT_EQ(result.integer("other", 1), std::nullopt);
  EXPECT_THROW(harness.run({"--nproc", "x"}).integer("nproc", 1), Error);
  EXPECT_FALSE(harness.run({"--dry-run=false"}).has("dry-run"));
  EXPECT_TRUE(harness.run({"nonsense", "--help"}).help);
  EXPECT_EQ(harness.run({"--help", "lora"}).help_topic, "lora");
  EXPECT_EQ(harness.run({"--help=lora"}).help_topic, "lora");
  EXPECT_EQ(harness.run({"-h", "all"}).help_topic, "all");
  EXPECT_EQ(harness.run({"--help", "seed=1"}).help_topic, "");
  EXPECT_TRUE(harness.run({"--complete", "nonsense"}).help);
}

TEST(Resolve, RequiredKeys) {
  Harness harness;
  harness.options.required = {"training.output_dir", "data.train"};
  const std::string text = harness.error({});
  EXPECT_THAT(text, HasSubstr("training.output_dir: is required"));
  EXPECT_THAT(text, HasSubstr("data.train: is required"));
  EXPECT_EQ(harness.error({"output_dir=x", "data.train=y"}), "");
}

TEST(Resolve, WhatIsNotBuiltYetMayBePredicted) {
  ResolveOptions options;
  options.command = "plan";
  options.environment = [](const std::string&) { return std::optional<std::string>(); };
  const std::vector<std::string> arguments{
      "parallel.offload_optimizer.device=nvme", "parallel.offload_optimizer.path=/x"};
  options.purpose = Purpose::kPredict;
  EXPECT_EQ(resolve(arguments, options).config.parallel.offload_optimizer.device, "nvme");
  const bool refused =
      find_rule(unsupported_keys(), "parallel.offload_optimizer.device") != nullptr;
  options.purpose = Purpose::kRun;
  if (refused) {
    EXPECT_THROW(resolve(arguments, options), Error);
  }
}

TEST(Resolve, NamesOfVersion4) {
  const Harness harness;
  const auto config = [&](const char* argument) { return harness.run({argument}).config; };
  EXPECT_EQ(config("evaluation_strategy=no").training.eval_strategy, "no");
  EXPECT_EQ(config("warmup_ratio=0.1").training.warmup_steps, 0.1);
  EXPECT_EQ(harness.run({"warmup_ratio=0.1", "warmup_steps=7"}).config.training.warmup_steps, 7);
  EXPECT_EQ(harness.run({"warmup_steps=0", "warmup_ratio=0.1"}).config.training.warmup_steps, 0.1);
  EXPECT_THAT(
      harness.error({"warmup_ratio=2"}), HasSubstr("2: must be a fraction from 0 to below 1"));
  EXPECT_EQ(config("adafactor=true").training.optim, "adafactor");
  EXPECT_EQ(config("group_by_length=true").training.train_sampling_strategy, "group_by_length");
  EXPECT_EQ(config("group_by_length=false").training.train_sampling_strategy, "random");
  EXPECT_THAT(harness.error({"save_safetensors=false"}), HasSubstr("safetensors"));
  EXPECT_THAT(harness.error({"--push_to_hub"}), HasSubstr("Hub"));
  EXPECT_THAT(harness.error({"optim_args=x"}), HasSubstr("adam_beta1"));
}

TEST(Resolve, AcceptsOlderNameOfInMemoryReplicas) {
  const Harness harness;
  const auto checkpoint = [&](const std::vector<std::string>& arguments) {
    const Resolution resolution = harness.run(arguments);
    EXPECT_THAT(resolution.warnings, IsEmpty());
    return resolution.config.checkpoint;
  };
  EXPECT_EQ(checkpoint({"checkpoint.in_memory_replicas=1"}).in_memory_replicas, 1);
  EXPECT_EQ(checkpoint({"checkpoint.replicas=1"}).in_memory_replicas, 1);
  EXPECT_EQ(checkpoint({"--checkpoint.replicas", "1"}).in_memory_replicas, 1);
  harness.write(
      "a.yaml", "checkpoint:\n  replicas: 1\n  compare_replicas: ${checkpoint.replicas}\n");
  EXPECT_EQ(checkpoint({"-c", "@/a.yaml"}).in_memory_replicas, 1);
  EXPECT_EQ(checkpoint({"-c", "@/a.yaml"}).compare_replicas, 1);
  EXPECT_EQ(
      checkpoint({"-c", "@/a.yaml", "checkpoint.in_memory_replicas=0"}).in_memory_replicas, 0);
  harness.write("b.yaml", "checkpoint:\n  in_memory_replicas: 1\n  replicas: 0\n");
  EXPECT_THAT(harness.error({"-c", "@/b.yaml"}), HasSubstr("also given as replicas"));
}

TEST(Resolve, NamesThatDoNothingAreWarnedOfUnlessHarmless) {
  const Harness harness;
  EXPECT_TRUE(
      any_holds(harness.run({"--torch_compile"}).warnings, "training.torch_compile (command line"));
  EXPECT_TRUE(any_holds(harness.run({"logging_dir=x"}).warnings, "report_to=tensorboard"));
  EXPECT_THAT(harness.run({"logging_dir=x", "report_to=tensorboard"}).warnings, IsEmpty());
  for (const char* harmless :
       {"torch_compile=false",
        "save_safetensors=true",
        "push_to_hub=false",
        "logging_dir=null",
        "fp16_backend=auto",
        "debug=",
        "optim_args=null",
        "dataloader_pin_memory=true",
        "past_index=-1",
        "skip_memory_metrics=true",
        "local_rank=3",
        "label_names=null",
        "gradient_checkpointing_kwargs={}"}) {
    EXPECT_THAT(harness.run({harmless}).warnings, IsEmpty()) << harmless;
  }
  EXPECT_THAT(harness.run({"--local-rank=1"}).warnings, IsEmpty());
  EXPECT_THAT(harness.run({"--local_rank", "1"}).warnings, IsEmpty());
}

TEST(Resolve, EveryKnownNameHasAnAnswer) {
  const Harness harness;
  for (const KeyRule& rule : trainer_rules()) {
    const std::string argument = std::string(rule.name) + "=other";
    const std::string text = harness.error({argument});
    if (rule.kind == KeyRule::Kind::kIgnored) {
      EXPECT_EQ(text, "") << argument;
      EXPECT_EQ(harness.run({argument}).warnings.empty(), rule.harmless == "*") << argument;
    } else {  // a column may have any name
      EXPECT_EQ(text.empty(), argument.find("_column_name") != std::string::npos) << argument;
    }
  }
}

TEST(Resolve, OneKeyUnderTwoNames) {
  const Harness harness;
  harness.write("a.yaml", "training:\n  eval_strategy: no\n  evaluation_strategy: epoch\n");
  EXPECT_THAT(harness.error({"-c", "@/a.yaml"}), HasSubstr("also given as evaluation_strategy"));
  harness.write("b.yaml", "seed: 1\ntraining:\n  seed: 2\n");
  EXPECT_THAT(harness.error({"-c", "@/b.yaml"}), HasSubstr("also given as seed"));
  // The last override on the command line wins, independent of the name in the file.
  harness.write("c.yaml", "seed: 1\n");
  EXPECT_EQ(harness.run({"-c", "@/c.yaml", "training.seed=2"}).config.training.seed, 2);
  EXPECT_EQ(harness.run({"-c", "@/c.yaml", "seed=3"}).config.training.seed, 3);
}

TEST(Resolve, TheRanksAreChecked) {
  Harness harness;
  harness.options.ranks = 4;
  EXPECT_THAT(harness.error({"parallel.data=3"}), HasSubstr("does not multiply to the 4 ranks"));
  EXPECT_EQ(harness.error({"parallel.data=4"}), "");
  harness.options.ranks.reset();
  harness.environment["WORLD_SIZE"] = "2";
  EXPECT_THAT(harness.error({"parallel.data=3"}), HasSubstr("does not multiply to the 2 ranks"));
  harness.environment["WORLD_SIZE"] = "two";
  EXPECT_THAT(harness.error({}), HasSubstr("WORLD_SIZE (environment: WORLD_SIZE): 'two'"));
}

TEST(Resolve, DataParallelRanks) {
  ParallelSection parallel;
  EXPECT_EQ(data_parallel_ranks(parallel, 6), 6);
  parallel.tensor = 2;
  parallel.pipeline = 3;
  EXPECT_EQ(data_parallel_ranks(parallel, 12), 2);
  try {
    data_parallel_ranks(parallel, 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not divide the 8 ranks"));
    EXPECT_THAT(error.remedy(), HasSubstr("parallel.data=4 parallel.tensor=2\n"));
  }
}

/// transformers 5 writes some arguments under their old and their new name.
TEST(Resolve, EqualValuesUnderTwoNamesAreNoConflict) {
  const Harness harness;
  harness.write(
      "same.json", R"({"activation_checkpointing": true, "gradient_checkpointing": true})");
  EXPECT_TRUE(harness.run({"@/same.json"}).config.training.gradient_checkpointing);
  harness.write(
      "other.json", R"({"activation_checkpointing": true, "gradient_checkpointing": false})");
  EXPECT_THAT(harness.error({"@/other.json"}), HasSubstr("also given as"));
}

/// An override can replace the only reference to a variable.
TEST(Resolve, AVariableOfTheFileNeedsNoReferenceAfterOverrides) {
  const Harness harness;
  harness.write("run.yaml", "name: a\ntraining: {output_dir: 'runs/${name}'}\n");
  EXPECT_EQ(harness.run({"-c", "@/run.yaml"}).config.training.output_dir, "runs/a");
  EXPECT_EQ(
      harness.run({"-c", "@/run.yaml", "training.output_dir=x"}).config.training.output_dir, "x");
}

TEST(Resolve, SeveralWordsAreTakenByFlagsOfLists) {
  const Harness harness;
  EXPECT_THAT(harness.run({"--label_names", "labels", "--seed", "1"}).warnings, IsEmpty());
  EXPECT_EQ(harness.run({"--include_for_metrics", "inputs", "loss"}).warnings.size(), 1U);
  EXPECT_EQ(harness.run({"--label_names", "a", "b", "seed=3"}).config.training.seed, 3);
}

}  // namespace resolve_test
}  // namespace lockstep::config
