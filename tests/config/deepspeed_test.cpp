// Tests DeepSpeed configuration files.
#include "config/compat/deepspeed.h"

#include <gmock/gmock.h>

#include "config/core/schema.h"
#include "config/core/settings.h"
#include "config/core/unsupported_keys.h"
#include "config/harness.h"

namespace lockstep::config {
namespace deepspeed_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Read {
  Value settings;
  Problems problems;
  std::vector<std::string> warnings;

  std::string text(const std::string& key) const {
    const Value* value = settings.find(split_path(key));
    return value == nullptr ? "-" : to_text(*value);
  }
};

Read read(
    const std::string& json,
    std::optional<int64_t> ranks = std::nullopt,
    const std::string& yaml = "") {
  Read result;
  Value tree = to_value(Config{});
  for (const std::string& line : yaml.empty() ? std::vector<std::string>{} : std::vector{yaml}) {
    const size_t equal = line.find('=');
    set_key(
        tree,
        line.substr(0, equal),
        line.substr(equal + 1),
        {.source = Origin::Source::kFile, .place = "a.yaml:1"});
  }
  const Value file = read_deepspeed(Value::scalar(json), result.problems);
  const DeepspeedContext context{tree, ranks, false, result.problems, result.warnings};
  result.settings = deepspeed_settings(file, context);
  return result;
}

// The ZeRO 3 offload example of the Transformers documentation.
constexpr const char* kAutoFile = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
           "hysteresis": 2, "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW",
                "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR",
                "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                           "warmup_type": "linear"}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true
  },
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "steps_per_print": 2000,
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "wall_clock_breakdown": false
})";

TEST(Deepspeed, ReadsTheFileOfTheTransformersDocumentation) {
  const Read result = read(kAutoFile, 2);
  EXPECT_THAT(result.problems.lines(), IsEmpty());
  EXPECT_EQ(result.text("parallel.zero_stage"), "3");
  EXPECT_EQ(result.text("parallel.offload_optimizer.device"), "'cpu'");
  EXPECT_EQ(result.text("parallel.offload_param.device"), "'cpu'");
  EXPECT_EQ(result.text("training.per_device_train_batch_size"), "8");
  EXPECT_EQ(result.text("training.gradient_accumulation_steps"), "1");
  EXPECT_EQ(result.text("training.lr_scheduler_type"), "constant_with_warmup");
  EXPECT_EQ(result.text("training.bf16"), "-");
  EXPECT_EQ(result.text("training.learning_rate"), "-");
  EXPECT_TRUE(any_holds(result.warnings, "zero_optimization.overlap_comm"));
}

TEST(Deepspeed, MapsFiguresAndTells) {
  const Read result = read(R"({
    // A file with comments.
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8, "gradient_clipping": 0.5,
    "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 100, "total_num_steps": 5000,
                  "warmup_max_lr": 3e-4, "warmup_type": "linear"}},
    "bf16": {"enabled": true}, "fp16": {"enabled": false},
    "zero_optimization": {"stage": 1, "cpu_offload": true},
    "tensor_parallel": {"autotp_size": 2}, "dataloader_drop_last": true, "_comment": "x",
  })");
  EXPECT_THAT(result.problems.lines(), IsEmpty());
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{
           {"training.per_device_train_batch_size", "4"},
           {"training.gradient_accumulation_steps", "8"},
           {"training.max_grad_norm", "0.5"},
           {"training.learning_rate", "3e-4"},
           {"training.adam_beta1", "0.9"},
           {"training.adam_beta2", "0.95"},
           {"training.adam_epsilon", "1e-6"},
           {"training.weight_decay", "0.1"},
           {"training.lr_scheduler_type", "linear"},
           {"training.warmup_steps", "100"},
           {"training.max_steps", "5000"},
           {"training.bf16", "true"},
           {"training.fp16", "false"},
           {"parallel.zero_stage", "1"},
           {"parallel.offload_optimizer.device", "cpu"},
           {"parallel.tensor", "2"},
           {"training.dataloader_drop_last", "true"}}) {
    EXPECT_EQ(result.text(key), text) << key;
  }
}

TEST(Deepspeed, TakesThePersistenceThresholdAsANumberWithAnExponent) {
  const auto threshold = [](const char* key) {
    return read(std::string(R"({"zero_optimization": {"stage": 3, ")") + key + R"(": 1e5}})")
        .text("parallel.persistence_threshold");
  };
  EXPECT_EQ(threshold("stage3_param_persistence_threshold"), "100000");
  EXPECT_EQ(threshold("param_persistence_threshold"), "100000");
}

TEST(Deepspeed, CompletesTheBatchTriple) {
  const auto triple = [](const std::string& json, int64_t ranks, const std::string& set = "") {
    const Read result = read(json, ranks, set);
    return result.problems.empty() ? result.text("training.per_device_train_batch_size") + " x " +
                                         result.text("training.gradient_accumulation_steps")
                                   : result.problems.lines()[0];
  };
  EXPECT_EQ(triple(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", 4), "4 x 4");
  EXPECT_EQ(triple(R"({"train_batch_size": 64, "gradient_accumulation_steps": 2})", 4), "8 x 2");
  EXPECT_EQ(triple(R"({"train_batch_size": 64})", 4), "16 x 1");
  EXPECT_EQ(triple(R"({"train_micro_batch_size_per_gpu": 3})", 4), "3 x 1");
  EXPECT_EQ(
      triple(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"})", 4), "8 x 2");
  EXPECT_EQ(
      triple(
          R"({"train_micro_batch_size_per_gpu": 3})", 4, "training.gradient_accumulation_steps=5"),
      "3 x 5");
  EXPECT_EQ(
      triple(
          R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4})",
          4),
      "4 x 4");
  EXPECT_EQ(
      triple(R"({"train_batch_size": 16, "tensor_parallel": {"autotp_size": 2}})", 4), "8 x 1");
  EXPECT_THAT(
      triple(
          R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
          4),
      HasSubstr("train_batch_size 64 is not train_micro_batch_size_per_gpu 4 x "
                "gradient_accumulation_steps 2 x 4"));
  EXPECT_THAT(triple(R"({"train_batch_size": 10})", 4), HasSubstr("not divisible"));
  EXPECT_THAT(
      triple(R"({"gradient_accumulation_steps": 4})", 4),
      HasSubstr("does not determine the batch"));
  EXPECT_THAT(triple(R"({"train_batch_size": 0})", 4), HasSubstr("not a positive integer"));
  EXPECT_THAT(read(R"({"train_batch_size": 64})").problems.lines()[0], HasSubstr("--nproc"));
}

TEST(Deepspeed, EveryKeyOfTheTableIsKnownAndRefusedOnesAreRefused) {
  for (const KeyRule& rule : deepspeed_rules()) {
    std::string open, close;
    for (const std::string& part : split_path(rule.name)) {
      open += "{\"" + part + "\": ";
      close += "}";
    }
    std::string json = open;
    json += "\"other\"";
    json += close;
    const Read result = read(json, 1);
    if (rule.kind == KeyRule::Kind::kRefused) {
      EXPECT_EQ(result.problems.lines().size(), 1U) << rule.name;
    } else if (rule.kind == KeyRule::Kind::kIgnored) {
      EXPECT_THAT(result.problems.lines(), IsEmpty()) << rule.name;
      EXPECT_EQ(result.warnings.empty(), rule.harmless == "*") << rule.name;
    } else {
      EXPECT_FALSE(any_holds(result.problems.lines(), "unknown key")) << rule.name;
    }
  }
}

TEST(Deepspeed, UnknownKeysAreProblemsWithTheNearestName) {
  const Read result = read(
      R"({"zero_optimisation": {"stage": 2}, "fp16": {"enable": true}, "zero_optimization": {"stge": 1}})");
  EXPECT_THAT(
      result.problems.lines(),
      ElementsAre(
          HasSubstr("Did you mean 'zero_optimization'?"),
          HasSubstr("Did you mean 'fp16.enabled'?"),
          HasSubstr("Did you mean 'zero_optimization.stage'?")));
}

TEST(Deepspeed, WhatWouldChangeTheResultIsRefused) {
  const auto problem = [](const char* json) {
    const Read result = read(json);
    return result.problems.empty() ? std::string() : result.problems.lines()[0];
  };
  EXPECT_THAT(problem(R"({"optimizer": {"type": "Lamb"}})"), HasSubstr("not supported"));
  EXPECT_THAT(
      problem(
          R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})"),
      HasSubstr("remove it"));
  EXPECT_EQ(
      problem(
          R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0}}})"),
      "");
  EXPECT_THAT(problem(R"({"scheduler": {"type": "OneCycle"}})"), HasSubstr("WarmupLR"));
  EXPECT_THAT(
      problem(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-6}}})"),
      HasSubstr("starts at 0"));
  EXPECT_THAT(problem(R"({"gradient_allreduce_op": "sum"})"), HasSubstr("target tokens"));
  EXPECT_THAT(
      read(R"({"scheduler": {"type": "WarmupLR"}})").warnings,
      testing::Contains(HasSubstr("logarithm")));
}

TEST(Deepspeed, IsReadThroughTheConfiguration) {
  Harness harness;
  harness.write(
      "ds.json",
      R"({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})");
  const Resolution result = harness.run({"--deepspeed", "@/ds.json"});
  EXPECT_EQ(result.config.training.per_device_train_batch_size, 4);
  EXPECT_EQ(result.config.training.learning_rate, 1e-3);
  EXPECT_EQ(harness.origin(result, "training.learning_rate"), "@/ds.json:1");
  // All contradictions are reported.
  const std::string text = harness.error(
      {"--deepspeed=@/ds.json", "learning_rate=5e-5", "per_device_train_batch_size=2"});
  EXPECT_THAT(
      text,
      HasSubstr("training.learning_rate (command line: learning_rate=5e-5): 5e-5 contradicts 1e-3 "
                "(@/ds.json:1)"));
  EXPECT_THAT(text, HasSubstr("2 contradicts 4"));
  EXPECT_EQ(harness.error({"--deepspeed=@/ds.json", "learning_rate=0.001"}), "");
  // base64, as launchers pass it, and a map in the configuration file.
  EXPECT_EQ(
      harness
          .run({
              "--deepspeed=eyJ0cmFpbl9taWNyb19iYXRjaF9zaXplX3Blcl9ncHUiOiAyfQ=="  // {"train_micro_batch_size_per_gpu":
                                                                                  // 2}
          })
          .config.training.per_device_train_batch_size,
      2);
  harness.write("a.yaml", "training:\n  deepspeed:\n    train_micro_batch_size_per_gpu: 3\n");
  EXPECT_EQ(harness.run({"-c", "@/a.yaml"}).config.training.per_device_train_batch_size, 3);
  EXPECT_THAT(harness.error({"deepspeed=nothing.json"}), HasSubstr("is neither a file"));
  // Unsupported settings are reported with the line in the file.
  harness.write("z.json", "{\n\"zero_optimization\": {\"stage\": 2}}");
  if (any_holds({harness.error({"deepspeed=@/z.json"})}, "not supported yet")) {
    EXPECT_THAT(
        harness.error({"deepspeed=@/z.json"}), HasSubstr("parallel.zero_stage (@/z.json:2)"));
  }
}

/// DeepSpeed decays every parameter, and has defaults of its own for values that the section lacks.
TEST(Deepspeed, TellsWhereItsOptimizerWouldDiffer) {
  const Read decayed =
      read(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}}})");
  ASSERT_EQ(decayed.warnings.size(), 1U);
  EXPECT_THAT(decayed.warnings[0], HasSubstr("does not apply to biases and norms"));
  const char* const lacking = R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})";
  EXPECT_THAT(read(lacking).warnings, IsEmpty());
  const Read other = read(lacking, std::nullopt, "training.adam_beta2=0.95");
  ASSERT_EQ(other.warnings.size(), 1U);
  EXPECT_THAT(other.warnings[0], HasSubstr("training.adam_beta2 (0.95; DeepSpeed 0.999)"));
  EXPECT_THAT(
      read(R"({"optimizer": {"type": "AdamW", "params": {}}})").warnings[0],
      HasSubstr("training.learning_rate"));
}

}  // namespace deepspeed_test
}  // namespace lockstep::config
