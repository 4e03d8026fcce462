// LoRA adapters: types, dropout, trained parameters and initialization. Values and gradients are
// compared with PEFT in tests/train/adapters_test.cpp.
#include "nn/low_rank.h"

#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nn/initialize.h"

namespace lockstep::nn {
namespace low_rank_test {

model::ModelConfig small() {
  return model::parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 4,
          "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0})",
      "test");
}

struct Adapted {
  std::unique_ptr<LanguageModel> model;
  model::Adapters adapters;
};

Adapted adapted(at::ScalarType type, model::LoraConfig config = {}) {
  config.targets_all_linear = true;
  Adapted result{make_model(small(), type, at::kCPU), {}};
  result.adapters =
      model::resolve_adapters(config, result.model->config(), model::AdapterOrigin::kNew);
  add_adapters(*result.model, result.adapters);
  initialize(*result.model, 5);
  return result;
}

ForwardInputs inputs_of_training(bool training) {
  ForwardInputs inputs;
  inputs.ids = torch::arange(12).view({2, 6});
  inputs.targets = next_tokens(inputs.ids);
  inputs.samples = torch::arange(2);
  inputs.training = training;
  return inputs;
}

/// The base's result has the base's type; A, B and the sum are in float32 and rounded once.
TEST(LowRank, IsAddedInFloat32AndRoundedOnce) {
  auto dropout = std::make_shared<Dropout>();
  LowRankLinearKernel product(
      std::make_shared<DenseLinearKernel>(WeightLayout::kOutIn), /*scale=*/0.7, dropout);
  std::map<std::string, Tensor> values;
  product.visit_parameters([&](const Parameter& parameter) {
    if (parameter.name != "bias") {
      const bool is_base = parameter.name == "weight";
      parameter.value = torch::randn({parameter.out >= 0 ? 5 : 3, parameter.in >= 0 ? 7 : 3})
                            .to(is_base ? at::kBFloat16 : at::kFloat);
      values[parameter.name] = parameter.value;
    }
  });
  const Tensor x = torch::randn({4, 7}).to(at::kBFloat16), wide = x.to(at::kFloat);
  const Tensor base = at::linear(x, values.at("weight"));
  const Tensor added =
      at::linear(at::linear(wide, values.at("lora_A.weight")), values.at("lora_B.weight"));
  const Tensor y = product.forward(x, {});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(y.equal((base.to(at::kFloat) + 0.7 * added).to(at::kBFloat16)));
}

TEST(LowRank, OfAFrozenModelTheFactorsAloneAreTrainedAndAddNothingAtFirst) {
  Adapted made = adapted(at::kFloat);
  const auto plain = make_model(small(), at::kFloat, at::kCPU);
  initialize(*plain, 5);
  const ForwardInputs inputs = inputs_of_training(false);
  EXPECT_TRUE(made.model->logits(inputs).equal(plain->logits(inputs)));
  made.model->loss(inputs).backward();
  size_t trained = 0;
  made.model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    const bool is_factor = name.find(".lora_") != std::string::npos;
    EXPECT_EQ(parameter.requires_grad(), is_factor) << name;
    EXPECT_EQ(parameter.grad().defined(), is_factor) << name;
    EXPECT_EQ(made.adapters.file_names.count(name), is_factor ? 1U : 0U) << name;
    trained += is_factor ? 1 : 0;
    if (name.ends_with("c_fc.lora_A.weight")) {  // uniform between +-1 / sqrt(in)
      const double bound = 1 / std::sqrt(24.0);
      EXPECT_LE(parameter.abs().max().item<double>(), bound);
      EXPECT_NEAR(parameter.square().mean().item<double>(), bound * bound / 3, bound * bound / 15);
    }
  });
  EXPECT_EQ(trained, 2U * 2 * 4);
}

/// Dropout does not affect the base, and each layer has its own mask.
TEST(LowRank, DropoutIsOfWhatTheFactorsRead) {
  model::LoraConfig config;
  config.lora_dropout = 0.5;
  Adapted made = adapted(at::kFloat, config);
  const ForwardInputs training = inputs_of_training(true), evaluation = inputs_of_training(false);
  EXPECT_TRUE(made.model->logits(training).equal(made.model->logits(evaluation)));  // B is zero
  std::set<int64_t> sites;
  made.model->visit_slots(each<Linear>([&](const SlotName&, std::shared_ptr<Linear>& linear) {
    sites.insert((*linear->product()->input_dropout())->site);
  }));
  EXPECT_EQ(sites.size(), 2U * 4);
  const at::NoGradGuard no_grad;
  made.model->visit_parameters([](const std::string& name, Tensor& parameter) {
    if (name.ends_with("lora_B.weight")) {
      parameter.fill_(0.1);
    }
  });
  const Tensor dropped = made.model->logits(training);
  EXPECT_FALSE(dropped.equal(made.model->logits(evaluation)));
  EXPECT_TRUE(dropped.equal(made.model->logits(training)));  // the same mask again
}

}  // namespace low_rank_test
}  // namespace lockstep::nn
