// Tests Accelerate configuration files.
#include "config/compat/accelerate.h"

#include <gmock/gmock.h>

#include "config/compat/fsdp.h"
#include "config/core/yaml.h"
#include "config/harness.h"

namespace lockstep::config {
namespace accelerate_test {

using testing::HasSubstr;
using testing::IsEmpty;

struct Read {
  Value settings;
  Problems problems;
  std::vector<std::string> warnings;

  std::string text(const std::string& key) const {
    const Value* value = settings.find(split_path(key));
    return value == nullptr ? "-" : value->text;
  }
};

Read read(const std::string& yaml) {
  Read result;
  result.settings =
      accelerate_settings(parse_yaml(yaml, "acc.yaml"), result.problems, result.warnings);
  return result;
}

// Files as `accelerate config` writes them.
TEST(Accelerate, ReadsADeepspeedFile) {
  const Read result = read(
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndeepspeed_config:\n"
      "  gradient_accumulation_steps: 4\n  gradient_clipping: 1.0\n  offload_optimizer_device: "
      "cpu\n"
      "  offload_param_device: none\n  zero3_init_flag: true\n  zero3_save_16bit_model: true\n"
      "  zero_stage: 3\ndistributed_type: DEEPSPEED\ndowncast_bf16: 'no'\nenable_cpu_affinity: "
      "false\n"
      "machine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\nnum_machines: 1\n"
      "num_processes: 4\nrdzv_backend: static\nsame_network: true\ntpu_env: []\n"
      "tpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n");
  EXPECT_THAT(result.problems.lines(), IsEmpty());
  EXPECT_EQ(result.text("parallel.zero_stage"), "3");
  EXPECT_EQ(result.text("parallel.offload_optimizer.device"), "cpu");
  EXPECT_EQ(result.text("training.gradient_accumulation_steps"), "4");
  EXPECT_EQ(result.text("training.max_grad_norm"), "1.0");
  EXPECT_EQ(result.text("training.bf16"), "true");
}

TEST(Accelerate, ReadsAnFsdpFile) {
  const std::string head = "distributed_type: FSDP\nmixed_precision: no\nfsdp_config:\n";
  const Read first = read(
      head +
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: BACKWARD_PRE\n"
      "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_forward_prefetch: false\n  "
      "fsdp_offload_params: true\n"
      "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_sync_module_states: true\n  fsdp_use_orig_params: true\n"
      "  fsdp_activation_checkpointing: true\n");
  EXPECT_THAT(first.problems.lines(), IsEmpty());
  EXPECT_EQ(first.text("parallel.zero_stage"), "3");
  EXPECT_EQ(first.text("parallel.offload_param.device"), "cpu");
  EXPECT_EQ(first.text("training.gradient_checkpointing"), "true");
  EXPECT_EQ(
      read(head + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n").text("parallel.zero_stage"), "2");
  EXPECT_EQ(read(head + "  sharding_strategy: 3\n").text("parallel.zero_stage"), "0");
  EXPECT_EQ(
      read(head + "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n")
          .text("parallel.zero_stage"),
      "2");
  const Read hybrid = read(head + "  fsdp_sharding_strategy: HYBRID_SHARD\n");
  EXPECT_EQ(hybrid.text("parallel.zero_stage"), "3");
  EXPECT_EQ(hybrid.text("parallel.shard_ranks"), "-1");  // ranks of one machine
  EXPECT_EQ(
      read(head + "  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n").text("parallel.zero_stage"),
      "2");
  EXPECT_THAT(
      read(head + "  fsdp_sharding_strategy: SOME_SHARD\n").problems.lines()[0],
      HasSubstr("acc.yaml:4"));
  EXPECT_THAT(
      read(head + "  fsdp_sharding_strateg: 1\n").problems.lines()[0],
      HasSubstr("Did you mean 'sharding_strategy'?"));
}

TEST(Accelerate, ReadsMegatronAndParallelismFiles) {
  const Read megatron = read(
      "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_gradient_clipping: 1.0\n"
      "  megatron_lm_num_micro_batches: 2\n  megatron_lm_pp_degree: 2\n  "
      "megatron_lm_recompute_activations: true\n"
      "  megatron_lm_sequence_parallelism: true\n  megatron_lm_tp_degree: 4\n"
      "  megatron_lm_expert_model_parallel_size: 3\n"
      "  megatron_lm_use_distributed_optimizer: true\n");
  EXPECT_THAT(megatron.problems.lines(), IsEmpty());
  EXPECT_EQ(megatron.text("parallel.tensor"), "4");
  EXPECT_EQ(megatron.text("parallel.pipeline"), "2");
  EXPECT_EQ(megatron.text("parallel.expert"), "3");
  EXPECT_EQ(megatron.text("parallel.sequence_parallel"), "true");
  EXPECT_EQ(megatron.text("parallel.recompute"), "selective");
  EXPECT_EQ(megatron.text("parallel.zero_stage"), "1");
  EXPECT_EQ(megatron.text("training.gradient_accumulation_steps"), "2");
  const Read parallel = read(
      "distributed_type: MULTI_GPU\nparallelism_config:\n  parallelism_config_tp_size: 2\n"
      "  parallelism_config_cp_size: 1\n  parallelism_config_dp_shard_size: 4\n");
  EXPECT_EQ(parallel.text("parallel.tensor"), "2");
  EXPECT_EQ(parallel.text("parallel.zero_stage"), "3");
  const Read ulysses =
      read("distributed_type: MULTI_GPU\nparallelism_config:\n  parallelism_config_sp_size: 2\n");
  EXPECT_EQ(ulysses.text("parallel.context"), "2");
  EXPECT_EQ(ulysses.text("parallel.context_attention"), "ulysses");
  const Read hybrid = read(
      "distributed_type: NO\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n"
      "  parallelism_config_dp_replicate_size: 2\n");
  EXPECT_THAT(hybrid.problems.lines(), IsEmpty());
  EXPECT_EQ(hybrid.text("parallel.shard_ranks"), "4");
}

/// accelerate reads the sections of the distributed type alone.
TEST(Accelerate, IgnoresTheSectionsOfOtherTypes) {
  const Read left = read(
      "distributed_type: 'NO'\ndeepspeed_config:\n  zero_stage: 3\n  gradient_clipping: 0.01\n"
      "  deepspeed_config_file: none.json\nfsdp_config: {}\n");
  EXPECT_THAT(left.problems.lines(), IsEmpty());
  EXPECT_EQ(left.text("parallel.zero_stage"), "-");
  EXPECT_EQ(left.text("training.max_grad_norm"), "-");
  ASSERT_EQ(left.warnings.size(), 1U);
  EXPECT_THAT(left.warnings[0], HasSubstr("deepspeed_config (acc.yaml:2) has no effect"));
  const Read other = read(
      "distributed_type: MULTI_GPU\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
      "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n");
  EXPECT_EQ(other.text("training.gradient_checkpointing"), "-");
  EXPECT_EQ(other.text("parallel.tensor"), "-");
  EXPECT_EQ(other.warnings.size(), 2U);
}

TEST(Accelerate, HasTheStagesOfItsPlugins) {
  EXPECT_EQ(
      read("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n").text("parallel.zero_stage"),
      "3");
  EXPECT_EQ(read("distributed_type: FSDP\n").text("parallel.zero_stage"), "3");
  EXPECT_EQ(read("distributed_type: DEEPSPEED\n").text("parallel.zero_stage"), "2");
  EXPECT_EQ(
      read("distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n")
          .text("parallel.zero_stage"),
      "-");
  EXPECT_EQ(
      read("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: "
           "false\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n")
          .text("parallel.zero_stage"),
      "2");
}

TEST(Accelerate, RefusesWhatItCannotDo) {
  const auto problem = [](const std::string& yaml) {
    const Read result = read(yaml);
    return result.problems.empty() ? std::string() : result.problems.lines()[0];
  };
  EXPECT_THAT(problem("compute_environment: AMAZON_SAGEMAKER\n"), HasSubstr("LOCAL_MACHINE"));
  EXPECT_THAT(problem("distributed_type: XLA\n"), HasSubstr("must be NO, MULTI_CPU"));
  EXPECT_THAT(
      problem("mixed_precision: fp8\nfp8_config:\n  fp8_format: E4M3\n"), HasSubstr("e5m2"));
  EXPECT_EQ(problem("mixed_precision: fp8\nfp8_config:\n  fp8_format: HYBRID\n"), "");
  EXPECT_THAT(problem("num_proceses: 2\n"), HasSubstr("Did you mean 'num_processes'?"));
  EXPECT_EQ(problem("mixed_precision: no\ndistributed_type: NO\n"), "");
}

TEST(Accelerate, IsALayerBelowTheConfiguration) {
  const Harness harness;
  harness.write(
      "acc.yaml",
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\n"
      "deepspeed_config:\n  gradient_accumulation_steps: 4\n  zero_stage: 0\n");
  harness.write("a.yaml", "training:\n  gradient_accumulation_steps: 2\n");
  const Resolution result = harness.run({"--config_file", "@/acc.yaml", "-c", "@/a.yaml"});
  EXPECT_TRUE(result.config.training.bf16);
  EXPECT_EQ(result.config.training.gradient_accumulation_steps, 2);
  EXPECT_EQ(harness.origin(result, "training.bf16"), "@/acc.yaml:3");
  EXPECT_TRUE(harness.run({"-c", "@/acc.yaml"}).config.training.bf16);
}

TEST(Accelerate, TheVariablesOfItsLauncherAreTheLowestLayer) {
  Harness harness;
  harness.environment = {
      {"ACCELERATE_MIXED_PRECISION", "bf16"},
      {"ACCELERATE_USE_CPU", "True"},
      {"ACCELERATE_USE_DEEPSPEED", "true"},
      {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "0"},
      {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"},
      {"ACCELERATE_GRADIENT_CLIPPING", "0.5"}};
  const Resolution result = harness.run({"training.max_grad_norm=2"});
  EXPECT_TRUE(result.config.training.bf16);
  EXPECT_TRUE(result.config.training.use_cpu);
  EXPECT_EQ(result.config.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(result.config.training.max_grad_norm, 2);
  EXPECT_EQ(harness.origin(result, "training.bf16"), "environment: ACCELERATE_MIXED_PRECISION");
  harness.environment = {
      {"ACCELERATE_MIXED_PRECISION", "no"},
      {"ACCELERATE_USE_FSDP", "true"},
      {"FSDP_SHARDING_STRATEGY", "NO_SHARD"},
      {"FSDP_OFFLOAD_PARAMS", "false"},
      {"PARALLELISM_CONFIG_TP_SIZE", "9"}};  // not in use
  EXPECT_EQ(harness.run({}).config.parallel.zero_stage, 0);
  harness.environment["FSDP_SHARDING_STRATEGY"] = "HYBRID_SHARD";
  EXPECT_EQ(harness.run({}).config.parallel.shard_ranks, -1);
}

TEST(Accelerate, FsdpOfTheTrainingArguments) {
  const Harness harness;
  const auto settings = [](const std::string& fsdp, const std::string& config) {
    Read result;
    result.settings = fsdp_settings(
        fsdp.empty() ? Value::null() : Value::scalar(fsdp),
        config.empty() ? Value::null() : Value::scalar(config),
        result.problems,
        result.warnings);
    return result;
  };
  EXPECT_EQ(settings("full_shard auto_wrap", "").text("parallel.zero_stage"), "3");
  EXPECT_EQ(settings("shard_grad_op", "").text("parallel.zero_stage"), "2");
  EXPECT_EQ(settings("full_shard offload", "").text("parallel.offload_param.device"), "cpu");
  EXPECT_EQ(
      settings("true", "{\"reshard_after_forward\": false}").text("parallel.zero_stage"), "2");
  EXPECT_EQ(settings("", "").text("parallel.zero_stage"), "-");
  EXPECT_EQ(settings("hybrid_shard", "").text("parallel.shard_ranks"), "-1");
  EXPECT_EQ(settings("", "{\"min_num_params\": 1}").warnings.size(), 1U);
  EXPECT_THAT(
      harness.error({"accelerator_config={split_batches: true}"}), HasSubstr("divide it yourself"));
  EXPECT_EQ(harness.error({"accelerator_config={even_batches: true}"}), "");
  EXPECT_EQ(harness.error({"fsdp=", "fsdp_config={}"}), "");
}

}  // namespace accelerate_test
}  // namespace lockstep::config
