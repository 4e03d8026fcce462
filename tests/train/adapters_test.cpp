// PEFT adapters: logits, losses, gradients and merged weights compared with golden files, and
// errors for adapters that do not fit.
#include "train/weights/adapters.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/file.h"
#include "comm/threads.h"
#include "model/adapters.h"
#include "numbers.h"
#include "parallel/parallelize.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "train/merge.h"
#include "train/weights/adapter_values.h"
#include "train/weights/initial_factors.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {
namespace adapters_test {

using at::Tensor;
namespace fs = std::filesystem;

fs::path golden() {
  return shared_data().parent_path() / "spec" / "golden";
}

struct Case {
  const char* base;
  const char* adapter;
};
void PrintTo(const Case& golden_case, std::ostream* out) {
  *out << golden_case.adapter;
}

class Golden : public testing::TestWithParam<Case> {};

/// In float32, with bases stored in bfloat16, without dropout, including gradients.
TEST_P(Golden, LogitsLossAndGradientsAreThoseOfPeft) {
  if (!fs::exists(golden() / GetParam().adapter)) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const fs::path folder = golden() / GetParam().adapter;
  ModelRequest request;
  request.adapter = saved_adapter(folder);
  const auto model = load_model(model::find_model((golden() / GetParam().base).string()), request);
  const checkpoint::TensorFiles expected(folder, "expected", ErrorKind::kData);
  const checkpoint::TensorFiles of_base(golden() / GetParam().base, "expected", ErrorKind::kData);
  nn::ForwardInputs inputs;
  inputs.ids = of_base.read_whole("ids");
  inputs.targets = nn::next_tokens(inputs.ids);
  EXPECT_LT(
      (model->logits(inputs) - expected.read_whole("logits")).abs().max().item<double>(), 1e-5);
  const Tensor loss = model->loss(inputs) / 3;
  EXPECT_NEAR(loss.item<double>(), expected.read_whole("loss").item<double>(), 1e-5);
  loss.backward();
  std::map<std::string, Tensor> gradients;
  model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (parameter.requires_grad()) {
      gradients[model::peft_name(name)] = parameter.grad();
    }
  });
  for (const std::string& name : expected.names()) {
    if (name.starts_with("gradient.")) {
      numbers::expect_values(gradients.at(name.substr(9)), expected.read_whole(name), name);
    }
  }
}

TEST_P(Golden, MergedWeightsGiveTheSameLogits) {
  if (!fs::exists(golden() / GetParam().adapter)) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const fs::path folder = golden() / GetParam().adapter;
  const auto base = model::find_model((golden() / GetParam().base).string());
  const MergedModel merged = merge_adapter(base, saved_adapter(folder).value(), at::kFloat);
  const checkpoint::TensorFiles expected(folder, "expected", ErrorKind::kData);
  std::map<std::string, Tensor> weights;
  for (const checkpoint::Piece& piece : merged.weights) {
    weights[piece.name] = piece.data.view(piece.shape);
    if (const std::string name = "merged." + piece.name; expected.contains(name)) {
      numbers::expect_values(weights[piece.name], expected.read_whole(name), name);
    }
  }
  const auto model = nn::make_model(merged.config, at::kFloat, at::kCPU);
  const at::NoGradGuard no_grad;
  model->visit_parameters(
      [&](const std::string& name, Tensor& parameter) { parameter.copy_(weights.at(name)); });
  nn::ForwardInputs inputs;
  inputs.ids = checkpoint::TensorFiles(golden() / GetParam().base, "expected", ErrorKind::kData)
                   .read_whole("ids");
  EXPECT_LT(
      (model->logits(inputs) - expected.read_whole("logits")).abs().max().item<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    OfTheSpecification,
    Golden,
    testing::Values(
        Case{"llama", "llama-lora"},
        Case{"llama", "llama-rslora-patterns"},
        Case{"llama", "llama-dora"},
        Case{"llama", "llama-modules-tokens"},
        Case{"gpt2", "gpt2-embedding"},
        Case{"gpt2", "gpt2-lora"},
        Case{"gpt2", "gpt2-dora-bias"}));

std::map<std::string, Tensor> merged_weights(
    const model::ModelSource& base, const std::optional<AdapterRequest>& adapter) {
  std::map<std::string, Tensor> weights;
  for (const checkpoint::Piece& piece : merge_adapter(base, adapter, at::kFloat).weights) {
    weights[piece.name] = piece.data.view(piece.shape);
  }
  return weights;
}

Tensor logits_beside(const model::ModelSource& base, const AdapterFlags& flags, const Tensor& ids) {
  ModelRequest request;
  request.adapter = saved_adapters(flags);
  nn::ForwardInputs inputs;
  inputs.ids = ids;
  const at::NoGradGuard no_gradient;
  return load_model(base, request)->logits(inputs);
}

/// PiSSA and OLoRA subtract the initial B A from the weight. A and B are unique up to signs; B A
/// and the remaining weight are unique.
TEST(InitialFactors, AreThoseOfTheSpecification) {
  if (!fs::exists(golden() / "initial.safetensors")) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const checkpoint::TensorFiles expected(golden(), "initial", ErrorKind::kData);
  const Tensor source = expected.read_whole("source");
  const model::ModelConfig config = model::parse_model_config(
      R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 12, "intermediate_size": 16,
          "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4})",
      "a test");
  const auto weight = [&](auto&&, auto&& parameter, int64_t begin, const Tensor& values) {
    copy_part(source, parameter, begin, values);
  };
  for (const std::string init : {"pissa", "olora"}) {
    model::LoraConfig lora;
    lora.r = 4;
    lora.lora_alpha = 8;
    lora.target_modules.names = {"up_proj"};
    lora.init_lora_weights = init;
    const auto adapters = model::resolve_adapters(lora, config, model::AdapterOrigin::kNew);
    const auto fill = with_initial_factors(adapters, config, weight, 1);
    const auto made = [&](const std::string& name, std::vector<int64_t> shape) {
      Tensor values = at::empty(shape, at::kFloat);
      fill("model.layers.0.mlp.up_proj." + name, {shape, {}}, 0, values);
      return values;
    };
    const Tensor a = made("lora_A.weight", {4, 12}), b = made("lora_B.weight", {16, 4});
    numbers::expect_values(a.abs(), expected.read_whole(init + ".A").abs(), init + " A");
    numbers::expect_values(b.abs(), expected.read_whole(init + ".B").abs(), init + " B");
    const Tensor rest = expected.read_whole(init + ".residual");
    numbers::expect_values(made("weight", {16, 12}), rest, init + " residual");
    numbers::expect_values(rest + 2 * b.mm(a), source, init + " whole");
    Tensor row = at::empty({12}, at::kFloat);  // a slice, as requested by ranks
    fill("model.layers.0.mlp.up_proj.weight", {{16, 12}, {}}, int64_t{5} * 12, row);
    EXPECT_TRUE(row.equal(made("weight", {16, 12})[5]));
  }
}

/// With different ranks, scales and targets; one weight is negative.
TEST(SeveralAdapters, AddWhatEachAddsTimesItsWeight) {
  if (!fs::exists(golden() / "llama-lora")) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const auto base = model::find_model((golden() / "llama").string());
  const std::vector<std::string> folders{
      (golden() / "llama-lora").string(), (golden() / "llama-rslora-patterns").string()};
  const AdapterFlags flags{folders, {0.75, -2}, "cat"};
  auto expected = merged_weights(base, std::nullopt);
  const auto plain = merged_weights(base, std::nullopt);
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const auto& [name, weight] : merged_weights(base, saved_adapter(folders[i]))) {
      expected.at(name) += flags.weights[i] * (weight - plain.at(name));
    }
  }
  const auto merged = merged_weights(base, saved_adapters(flags));
  const auto model = load_model(base, {});
  const at::NoGradGuard no_gradient;
  model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    numbers::expect_values(merged.at(name), expected.at(name), name);
    parameter.copy_(expected.at(name));
  });
  nn::ForwardInputs inputs;
  inputs.ids = at::arange(11).view({1, 11}) * 7;
  const Tensor wanted = model->logits(inputs);
  EXPECT_LT((logits_beside(base, flags, inputs.ids) - wanted).abs().max().item<double>(), 1e-5);
  EXPECT_GT(
      (logits_beside(base, {folders, {}, ""}, inputs.ids) - wanted).abs().max().item<double>(),
      1e-3);
}

/// PEFT's "linear": (sum of sqrt(w) B) (sum of signed sqrt(w) A).
TEST(SeveralAdapters, FactorsAreSummed) {
  if (!fs::exists(golden() / "gpt2-lora")) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const auto base = model::find_model((golden() / "gpt2").string());
  const std::string folder = (golden() / "gpt2-lora").string();
  const auto plain = merged_weights(base, std::nullopt);
  const auto once = merged_weights(base, saved_adapter(folder));
  // An adapter combined with itself: (sqrt(w1) + sqrt(w2)) (sqrt(w1) +- sqrt(w2)) times its own
  // contribution.
  for (const double second : {0.25, -0.25}) {
    const double factor = (1 + 0.5) * (second > 0 ? 1.5 : 0.5);
    for (const auto& [name, weight] :
         merged_weights(base, saved_adapters({{folder, folder}, {1, second}, "linear"}))) {
      const Tensor expected = plain.at(name) + factor * (once.at(name) - plain.at(name));
      EXPECT_LT((weight - expected).abs().max().item<double>(), 1e-5) << name;
    }
  }
}

/// Stacked factors have a different rank in each linear, which is not divisible by the number of
/// ranks.
TEST(SeveralAdapters, GiveOneLossUnderEveryPlan) {
  if (!fs::exists(golden() / "llama-lora")) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const auto base = model::find_model((golden() / "llama").string());
  const std::string first = (golden() / "llama-lora").string();
  const Tensor ids = at::arange(6 * 12).mul(7).remainder(base.config.vocab_size).view({6, 12});
  const auto loss_under = [&](const AdapterFlags& flags,
                              const mesh::Mesh& mesh,
                              parallel::Plan plan) {
    plan.sequence_length = ids.size(1);
    double loss = 0;
    comm::run_ranks(mesh.ranks(), [&](comm::Communicator& world) {
      parallel::ParallelGroups axes(world, mesh);
      ModelRequest request;
      request.adapter = saved_adapters(flags);
      const auto model = parallel::evaluation_model(model_spec(base, request), plan, axes);
      nn::ForwardInputs inputs;
      inputs.ids = ids.chunk(mesh.data)[static_cast<size_t>(axes.coordinate()[mesh::Axis::kData])];
      inputs.targets = nn::next_tokens(inputs.ids);
      const Tensor sums = model->statistics({&inputs, 1});
      axes.data_context().all_reduce(sums).wait();
      if (world.rank() == 0) {
        loss = sums[0].item<double>();
      }
    });
    return loss;
  };
  using parallel::SequenceSharding;
  const std::vector<std::pair<mesh::Mesh, parallel::Plan>> plans{
      {{.tensor = 2}, {}},
      {{.tensor = 3}, {}},
      {{.tensor = 2}, {.sequence_sharding = SequenceSharding::kShards}},
      {{.data = 3}, {.zero_stage = 3}},
      {{.pipeline = 2}, {}},
      {{.context = 2}, {}},
      {{.pipeline = 2, .tensor = 2}, {}},
      {{.data = 2, .context = 2, .tensor = 2}, {.zero_stage = 3}}};
  const double plain = loss_under({}, {}, {});
  for (const AdapterFlags& flags :
       {AdapterFlags{{first, (golden() / "llama-rslora-patterns").string()}, {0.75, -2}, "cat"},
        AdapterFlags{{first, first}, {1, 0.5}, "linear"}}) {
    const double alone = loss_under(flags, {}, {});
    EXPECT_GT(std::abs(alone - plain), 1e-3 * plain) << flags.combination;
    for (const auto& [mesh, plan] : plans) {
      EXPECT_NEAR(loss_under(flags, mesh, plan), alone, 1e-5 * alone)
          << flags.combination << " under " << mesh.text();
    }
  }
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error.what());
  }
  return "";
}

TEST(Adapters, TheSectionGoesOverTheFile) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "adapter_config.json";
  write_file_atomically(
      file,
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "target_modules": ["k_proj"],
          "base_model_name_or_path": "x"})");
  config::LoraSection section;
  EXPECT_FALSE(adapter_request(section));
  section.config = file.string();
  section.lora_alpha = 2;
  section.target_modules = {".*\\.(q|v)_proj"};
  const model::LoraConfig config = adapter_request(section)->config;
  EXPECT_EQ(config.r, 4);
  EXPECT_EQ(config.lora_alpha, 2);
  EXPECT_EQ(config.target_modules.pattern, ".*\\.(q|v)_proj");
  EXPECT_EQ(config.base_model_name_or_path, "");
}

TEST(Adapters, AFolderWithoutOneIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      message_of([&] { (void)saved_adapter(folder.path()); }),
      testing::AllOf(
          testing::HasSubstr("adapter_config.json"), testing::HasSubstr(folder.path().string())));
}

TEST(SeveralAdapters, WhatCannotBeCombinedIsRefused) {
  if (!fs::exists(golden() / "llama-dora")) {
    GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
  }
  const auto at = [](const char* name) { return (golden() / name).string(); };
  const auto told = [&](const AdapterFlags& flags) {
    return message_of([&] {
      (void)merge_adapter(model::find_model((golden() / "llama").string()), saved_adapters(flags));
    });
  };
  EXPECT_THAT(told({{at("llama-lora"), at("llama-dora")}, {}, ""}), testing::HasSubstr("use_dora"));
  EXPECT_THAT(
      told({{at("llama-lora"), at("llama-modules-tokens")}, {}, ""}),
      testing::HasSubstr("modules_to_save"));
  EXPECT_THAT(
      told({{at("llama-lora")}, {1, 2}, ""}), testing::HasSubstr("2 --adapter-weight for 1"));
  EXPECT_THAT(told({{}, {1}, ""}), testing::HasSubstr("1 --adapter-weight for 0"));
  EXPECT_THAT(
      told({{at("llama-lora")}, {std::nan("")}, ""}), testing::HasSubstr("--adapter-weight"));
  EXPECT_FALSE(saved_adapters({}));
}

}  // namespace adapters_test
}  // namespace lockstep::train
