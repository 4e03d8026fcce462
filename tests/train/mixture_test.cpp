// Checks of mixture-of-experts keys against the model.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/plan.h"

namespace lockstep::train {
namespace mixture_test {

model::ModelConfig mixture(const std::string& more = "") {
  return model::parse_model_config(
      R"({"model_type": "mixtral", "num_local_experts": 3)" + more + "}", "a test");
}

/// Returns the error message; empty if there is no error.
std::string refusal(const config::Config& config, const model::ModelConfig& model) {
  try {
    check_mixture(config, model);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_FALSE(error.remedy().empty());
    return error.message();
  }
  return {};
}

TEST(Mixture, LossesOfRoutersAreRefusedWhereThereAreNone) {
  config::Config config;
  const model::ModelConfig dense = model::preset("llama-tiny");
  EXPECT_EQ(refusal(config, dense), "");
  EXPECT_EQ(refusal(config, mixture()), "");
  config.training.router_aux_loss = "sequence";
  EXPECT_EQ(
      refusal(config, dense), "training.router_aux_loss is set, but the model has no experts");
  EXPECT_EQ(refusal(config, mixture()), "");
  config.training.router_aux_loss = "none";
  EXPECT_EQ(refusal(config, dense), "");
  config.training.router_z_loss_coef = 0.1;
  EXPECT_EQ(
      refusal(config, dense), "training.router_z_loss_coef is set, but the model has no experts");
}

TEST(Mixture, ACapacityThatDropsNothingOrHasNoExpertsIsRefused) {
  config::Config config;
  config.training.expert_capacity_factor = 1.25;
  EXPECT_EQ(refusal(config, mixture()), "");
  EXPECT_EQ(plan_of(config).expert_capacity_factor, 1.25);
  EXPECT_EQ(
      refusal(config, model::preset("llama-tiny")),
      "training.expert_capacity_factor is set, but the model has no experts");
  config.training.expert_capacity_factor = 1.5;  // two of three experts
  EXPECT_NE(refusal(config, mixture()).find("drops nothing"), std::string::npos);
}

TEST(Mixture, WhatTransformersWouldAddIsToBeChosen) {
  config::Config config;
  const model::ModelConfig asks =
      mixture(R"(, "output_router_logits": true, "router_aux_loss_coef": 0.25)");
  EXPECT_NE(refusal(config, asks).find("adds 0.25 times"), std::string::npos);
  for (const char* choice : {"sequence", "micro_batch", "none"}) {
    config.training.router_aux_loss = choice;
    EXPECT_EQ(refusal(config, asks), "") << choice;
  }
}

TEST(Mixture, ExpertsAreSpreadOverAsManyRanksAtMost) {
  config::Config config;
  config.parallel.expert = 3;
  EXPECT_EQ(refusal(config, mixture()), "");
  config.parallel.expert = 4;
  EXPECT_EQ(refusal(config, mixture()), "parallel.expert is 4, but the model has 3 experts");
  EXPECT_NE(refusal(config, model::preset("gpt2-tiny")), "");
}

TEST(Mixture, HalvesAreOfTokensThatAreSent) {
  config::Config config;
  config.parallel.expert_halves = true;
  EXPECT_EQ(
      refusal(config, mixture()),
      "parallel.expert_halves is set, but parallel.expert is 1: there is no expert all-to-all to "
      "overlap");
  config.parallel.expert = 2;
  EXPECT_EQ(refusal(config, mixture()), "");
}

TEST(Mixture, KeysBecomeThePlan) {
  config::Config config;
  config.training.router_aux_loss = "micro_batch";
  config.training.router_aux_loss_coef = 0.5;
  config.parallel.expert = 2;
  config.parallel.expert_halves = true;
  const parallel::Plan plan = plan_of(config);
  EXPECT_EQ(plan.expert_ranks, 2);
  EXPECT_TRUE(plan.expert_halves);
  EXPECT_EQ(plan.router_losses.balance, nn::Balance::kBatch);
  EXPECT_EQ(plan.router_losses.balance_coefficient, 0.5);
}

}  // namespace mixture_test
}  // namespace lockstep::train
