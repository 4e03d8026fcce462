// Tests the planner's job description of a configuration.
#include "plan/from_config/planned_job.h"

#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/split.h"
#include "plan/workload/job.h"
#include "temporary_folder.h"

namespace lockstep::plan {
namespace planned_job_test {

config::Config small_config() {
  config::Config config;
  config.training.per_device_train_batch_size = 4;
  config.data.sequence_length = 128;
  return config;
}

TEST(PlannedJob, IsTheConfigurationInThePlannersWords) {
  config::Config config = small_config();
  config.training.bf16 = true;
  config.training.gradient_accumulation_steps = 3;
  const Job job = planned_job(config, model::preset("gpt2"), 2, 2);
  EXPECT_EQ(job.mesh.data, 2);
  EXPECT_EQ(job.global_batch, 24);
  EXPECT_EQ(job.micro_batches(), 3);
  EXPECT_EQ(job.precision, Precision::kMixed16);
  EXPECT_TRUE(job.software.dropout);  // as in its config.json
}

TEST(PlannedJob, HasTheLayersThatTheTrainerGivesEachStage) {
  config::Config config = small_config();
  config.parallel.pipeline = 4;
  const model::ModelConfig model = model::preset("gpt2-medium");
  const auto split = [&](const char* how) {
    config.parallel.split = how;
    return split_layers(planned_job(config, model, 4, 4));
  };
  for (const char* how : {"auto", "parameters", "2,8,8,6"}) {
    std::vector<int64_t> layers;
    for (const model::ModelPart& part :
         model::split_model(model, {.stages = 4, .split = how, .sequence_length = 128})) {
      layers.push_back(part.layers);
    }
    EXPECT_EQ(split(how), layers) << how;
  }
}

TEST(PlannedJob, SharesStatesAsTheTrainerDoes) {
  config::Config config = small_config();
  config.parallel.zero_stage = 2;
  const auto sharing = [&](int64_t asked) {
    config.parallel.shard_ranks = asked;
    return planned_job(config, model::preset("gpt2"), 16, 4).sharing();
  };
  EXPECT_EQ(sharing(0), 16);
  EXPECT_EQ(sharing(8), 8);
  EXPECT_EQ(sharing(-1), 4);  // ranks of one machine
}

TEST(PlannedJob, CountsWhatTheOptimizerKeeps) {
  config::Config config;
  const auto bytes = [&](const char* optim) {
    config.training.optim = optim;
    return planned_job(config, model::preset("gpt2-tiny"), 1, 1).software.optimizer_bytes;
  };
  EXPECT_EQ(bytes("adamw_torch"), 8);
  EXPECT_NEAR(bytes("adamw_8bit"), 2.03, 0.01);
  EXPECT_EQ(bytes("lion_32bit"), 4);
  EXPECT_EQ(bytes("sgd"), 0);
  EXPECT_EQ(bytes("ademamix"), 12);
  EXPECT_EQ(bytes("schedule_free_adamw"), 12);
  // Muon: four bytes per element of hidden matrices, eight of embeddings, biases and norms.
  const model::ModelConfig tiny = model::preset("gpt2-tiny");
  const double hidden =
      12.0 * static_cast<double>(tiny.layers * tiny.hidden_size * tiny.hidden_size);
  EXPECT_NEAR(
      bytes("muon"), 8 - 4 * hidden / static_cast<double>(model::parameter_count(tiny)), 1e-9);
}

TEST(PlannedJob, CountsTheAdaptersThatARunWouldTrain) {
  const model::ModelConfig llama = model::preset("llama2-70b");
  const auto trained = [&](const config::LoraSection& lora) {
    config::Config config;
    config.lora = lora;
    const Job job = planned_job(config, llama, 1, 1);
    return adapter_parameters(job, count_parameters(llama).blocks);
  };
  config::LoraSection lora;
  lora.r = 16;
  // PEFT's defaults: queries (8192 to 8192) and values (8192 to 1024).
  const double own = 80.0 * 16 * (2 * 8192 + 8192 + 1024);
  EXPECT_NEAR(trained(lora), own, 1);
  lora.modules_to_save = {"lm_head"};
  EXPECT_NEAR(trained(lora), own + 32000.0 * 8192, 1);
  lora.modules_to_save = {};
  lora.layers_to_transform = {"0", "79"};
  EXPECT_NEAR(trained(lora), own / 40, 1);
  lora.layers_to_transform = {};
  lora.target_modules = {"all-linear"};
  EXPECT_NEAR(
      trained(lora), 80.0 * 16 * (2 * (8192 + 8192) + 2 * (8192 + 1024) + 3 * (8192 + 28672)), 1);
  lora.target_modules = {"k_porj"};
  EXPECT_THROW(trained(lora), Error);
  // The same from a PEFT file.
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": 32, "target_modules": ["o_proj"]})";
  config::LoraSection from_file;
  from_file.config = (folder.path() / "adapter_config.json").string();
  EXPECT_NEAR(trained(from_file), 80.0 * 32 * 2 * 8192, 1);
  config::LoraSection saved;
  saved.adapter = folder.path().string();
  EXPECT_NEAR(trained(saved), 80.0 * 32 * 2 * 8192, 1);
  // The adapter of a run folder is in its checkpoints: assumes all linear layers and PEFT's rank.
  saved.adapter = (folder.path() / "run").string();
  lora.target_modules = {"all-linear"};
  lora.r = 8;
  EXPECT_NEAR(trained(saved), trained(lora), 1);
}

}  // namespace planned_job_test
}  // namespace lockstep::plan
