// Tests complete files as found in public repositories, and the result of each key.
#include <gmock/gmock.h>

#include "config/compat/deepspeed.h"
#include "config/core/schema.h"
#include "config/core/settings.h"
#include "config/harness.h"

namespace lockstep::config {
namespace deepspeed_files_test {

using testing::HasSubstr;
using testing::IsEmpty;

struct File {
  const char* name;
  const char* json;
  std::vector<std::string> arguments;  // in addition to the file
  std::map<std::string, std::string> expected;
};

const std::vector<File>& files() {
  static const std::vector<File> kFiles = {
      {"ZeRO 1 in bfloat16, everything auto",
       R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1},
           "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
           "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})",
       {"bf16=true", "per_device_train_batch_size=3", "max_grad_norm=0.7"},
       {{"parallel.zero_stage", "1"},
        {"training.bf16", "true"},
        {"training.per_device_train_batch_size", "3"},
        {"training.max_grad_norm", "0.7"},
        {"training.ddp_bucket_cap_mb", "25.0"}}},
      {"ZeRO 2, float16 with a scale of its own, buckets of 2e8 elements",
       R"({"fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 11,
                    "loss_scale_window": 500, "hysteresis": 4, "min_loss_scale": 0.25},
           "zero_optimization": {"stage": 2, "allgather_partitions": true,
             "allgather_bucket_size": 2e8, "overlap_comm": true, "reduce_scatter": true,
             "reduce_bucket_size": 2e8, "contiguous_gradients": true, "round_robin_gradients": true},
           "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
           "steps_per_print": 100, "wall_clock_breakdown": false})",
       {},
       {{"parallel.zero_stage", "2"},
        {"training.fp16", "true"},
        {"precision.loss_scale.fixed", "0.0"},
        {"precision.loss_scale.initial_power", "11"},
        {"precision.loss_scale.window", "500"},
        {"precision.loss_scale.hysteresis", "4"},
        {"precision.loss_scale.minimum", "0.25"},
        {"training.ddp_bucket_cap_mb", "381.47"}}},
      {"a fixed loss scale, gradients sent in float32, prescaled",
       R"({"train_batch_size": 16, "fp16": {"enabled": true, "loss_scale": 128},
           "communication_data_type": "fp32", "prescale_gradients": true,
           "gradient_predivide_factor": 4.0,
           "optimizer": {"type": "Adam", "params": {"lr": 2e-5, "betas": [0.8, 0.999], "eps": 1e-8,
                         "weight_decay": 3e-7, "torch_adam": true}},
           "zero_optimization": {"stage": 0}})",
       {},
       {{"training.per_device_train_batch_size", "4"},
        {"precision.loss_scale.fixed", "128.0"},
        {"precision.reduce_type", "float32"},
        {"training.adam_beta1", "0.8"},
        {"training.weight_decay", "3.0e-07"}}},
      {"ZeRO 3 with everything offloaded to the host",
       R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
             "offload_optimizer": {"device": "cpu", "pin_memory": true, "ratio": 0.3,
                                   "buffer_count": 4, "fast_init": false},
             "offload_param": {"device": "cpu", "pin_memory": true, "buffer_count": 5,
                               "buffer_size": 1e8, "max_in_cpu": 1e9},
             "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
             "reduce_bucket_size": 1e6, "stage3_prefetch_bucket_size": 0.94e6,
             "stage3_param_persistence_threshold": 1e4, "stage3_max_live_parameters": 1e9,
             "stage3_max_reuse_distance": 1e9,
             "stage3_gather_16bit_weights_on_model_save": true},
           "communication_data_type": "bfp16", "train_micro_batch_size_per_gpu": 1})",
       {},
       {{"parallel.zero_stage", "3"},
        {"parallel.offload_optimizer.device", "cpu"},
        {"parallel.offload_optimizer.ratio", "0.3"},
        {"parallel.offload_param.device", "cpu"},
        {"parallel.prefetch_elements", "940000"},
        {"parallel.persistence_threshold", "10000"},
        {"precision.reduce_type", "bfloat16"}}},
      {"ZeRO 3 with everything in files",
       R"({"zero_optimization": {"stage": 3,
             "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true,
                                   "buffer_count": 4, "pipeline_read": true,
                                   "pipeline_write": true},
             "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true,
                               "buffer_count": 5, "buffer_size": 1e8, "max_in_cpu": 1e9}},
           "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 1,
                   "single_submit": false, "overlap_events": true},
           "train_micro_batch_size_per_gpu": 1})",
       {},
       {{"parallel.offload_optimizer.device", "nvme"},
        {"parallel.offload_optimizer.path", "/local_nvme"},
        {"parallel.offload_param.device", "nvme"},
        {"parallel.offload_param.path", "/local_nvme"}}},
      {"ZeRO++: shards within a machine of two ranks",
       R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 8,
           "zero_optimization": {"stage": 3, "reduce_bucket_size": 10000000,
             "reduce_scatter": true, "zero_quantized_weights": false,
             "zero_hpz_partition_size": 2, "zero_quantized_gradients": false,
             "contiguous_gradients": true, "overlap_comm": true}})",
       {},
       {{"parallel.shard_ranks", "2"}, {"parallel.zero_stage", "3"}}},
      {"the old words",
       R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1,
           "zero_optimization": {"stage": 2, "cpu_offload": true, "cpu_offload_params": false,
             "cpu_offload_use_pin_memory": true, "prefetch_bucket_size": 5e7},
           "zero_allow_untested_optimizer": true, "gradient_clipping": 1.0})",
       {},
       {{"parallel.offload_optimizer.device", "cpu"},
        {"parallel.offload_param.device", "none"},
        {"parallel.prefetch_elements", "50000000"}}},
  };
  return kFiles;
}

TEST(DeepspeedFiles, EveryKeyIsTakenMappedOrAnsweredWithWhy) {
  for (const File& file : files()) {
    Harness harness;
    harness.options.ranks = 4;
    harness.write("ds.json", file.json);
    std::vector<std::string> arguments = {"--deepspeed", "@/ds.json"};
    arguments.insert(arguments.end(), file.arguments.begin(), file.arguments.end());
    ASSERT_EQ(harness.error(arguments), "") << file.name;
    const Resolution result = harness.run(arguments);
    const Value values = to_value(result.config);
    for (const auto& [key, text] : file.expected) {
      const Value* value = values.find(split_path(key));
      ASSERT_NE(value, nullptr) << key;
      EXPECT_EQ(value->text.empty() ? to_text(*value) : value->text, text)
          << file.name << ": " << key;
    }
  }
}

TEST(DeepspeedFiles, WhatDoesNothingIsToldWithAReason) {
  Harness harness;
  harness.options.ranks = 4;
  harness.write("ds.json", files()[1].json);
  const auto warnings = harness.run({"--deepspeed", "@/ds.json"}).warnings;
  EXPECT_TRUE(any_holds(warnings, "allgather_bucket_size have no effect: stages 1 and 2"));
  harness.write("ds.json", files()[2].json);
  const auto scaled = harness.run({"--deepspeed", "@/ds.json"}).warnings;
  EXPECT_TRUE(any_holds(scaled, "prescale_gradients"));
  EXPECT_TRUE(any_holds(scaled, "divided by the step's target tokens"));
  harness.write("ds.json", files()[3].json);
  const auto offloaded = harness.run({"--deepspeed", "@/ds.json"}).warnings;
  EXPECT_TRUE(any_holds(offloaded, "offload_param.max_in_cpu"));
  EXPECT_TRUE(any_holds(offloaded, "stage3_max_live_parameters"));
}

TEST(DeepspeedFiles, WhatCannotBeIsRefusedWithItsLine) {
  const auto error = [](const std::string& json) {
    Harness harness;
    harness.options.ranks = 4;
    harness.write("ds.json", json);
    return harness.error({"--deepspeed", "@/ds.json"});
  };
  EXPECT_THAT(
      error(R"({"communication_data_type": "int8"})"), HasSubstr("must be fp32, fp16 or bf16"));
  EXPECT_THAT(
      error(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}})"),
      HasSubstr("does not divide the 4 ranks"));
  EXPECT_THAT(
      error(R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": "much"}})"),
      HasSubstr("a number of elements"));
  EXPECT_THAT(
      error(R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}})"),
      HasSubstr("precision.stochastic_rounding"));
  EXPECT_THAT(
      error(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"ratio": 1.5}}})"),
      HasSubstr("from 0 to 1"));
}

}  // namespace deepspeed_files_test
}  // namespace lockstep::config
