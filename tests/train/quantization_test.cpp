// Packed models from folders: quantized on loading, or already packed; errors for damaged folders.
#include "train/weights/quantization.h"

#include <cstring>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "model/adapters.h"
#include "nn/testing.h"
#include "numbers.h"
#include "temporary_folder.h"
#include "train/merge.h"
#include "train/weights/model_loading.h"
#include "train/weights/packed_folder.h"

namespace lockstep::train {
namespace quantization_test {

using at::Tensor;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::map<std::string, Tensor> values_of(nn::LanguageModel& model) {
  std::map<std::string, Tensor> values;
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    values[name] = parameter.detach().clone();
  });
  return values;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error.what());
  }
  return "";
}

/// A small random model of each family, saved in bfloat16.
struct Saved {
  TemporaryFolder folder;
  model::ModelSource source;
};
std::unique_ptr<Saved> save_small(size_t family) {
  auto saved = std::make_unique<Saved>();
  const auto config = model::parse_model_config(nn::kSmallModels[family], "test");
  const auto model = nn::small_model(config);
  MergedModel merged{config, at::kBFloat16, {}};
  for (const auto& [name, value] : values_of(*model)) {
    merged.weights.push_back(
        {"model",
         name,
         at::kBFloat16,
         value.sizes().vec(),
         0,
         value.to(at::kBFloat16).flatten(),
         {}});
  }
  save_merged(saved->folder.path() / "model", merged, nullptr);
  saved->source = model::find_model((saved->folder.path() / "model").string());
  return saved;
}

Tensor logits_of(const nn::LanguageModel& model) {
  const at::NoGradGuard no_gradient;
  nn::ForwardInputs inputs;
  inputs.ids = torch::arange(12).view({2, 6});
  return model.logits(inputs);
}

std::vector<model::Quantization> all_kinds() {
  model::Quantization nf4, fp4, int8;
  nf4.double_quant = true;
  fp4.type = model::Quantization::Type::kFp4;
  int8.bits = 8;
  return {nf4, fp4, int8};
}

/// A packed model has the same logits as the dense model of its dequantized weights.
TEST(Quantization, APackedModelIsTheModelOfItsValues) {
  for (const size_t family : {0, 1}) {
    const auto saved = save_small(family);
    for (const model::Quantization& quantization : all_kinds()) {
      ModelRequest request;
      request.quantization = quantization;
      const auto packed = load_model(saved->source, request);
      const parallel::ModelSpec spec = model_spec(saved->source, request);
      const auto dense = nn::make_model(spec.config, at::kFloat, at::kCPU);
      int64_t bytes = 0, floats = 0;
      dense->visit_parameters([&](const std::string& name, Tensor& parameter) {
        spec.fill(name, {parameter.sizes().vec(), {}}, 0, parameter.detach());
      });
      packed->visit_parameters([&](const std::string&, Tensor& parameter) {
        (parameter.scalar_type() == at::kByte ? bytes : floats) += parameter.numel();
      });
      EXPECT_EQ(
          std::ssize(*spec.packing), std::ssize(model::packed_linears(quantization, spec.config)));
      EXPECT_GT(bytes, 0);
      EXPECT_GT(floats, 0);
      numbers::expect_values(logits_of(*packed), logits_of(*dense), text_of(quantization));
    }
  }
}

/// An exported folder is read with the same bytes and has the same config.json.
TEST(Quantization, AnExportedFolderHoldsTheSameBytes) {
  for (const size_t family : {0, 1}) {
    const auto saved = save_small(family);
    for (const model::Quantization& quantization : all_kinds()) {
      const fs::path folder = saved->folder.path() / text_of(quantization);
      MergedModel model = merge_adapter(saved->source, std::nullopt);
      pack(model, quantization);
      save_merged(folder, model, nullptr);
      const model::ModelSource source = model::find_model(folder.string());
      ASSERT_TRUE(source.config.quantization.has_value());
      EXPECT_EQ(text_of(*source.config.quantization), text_of(quantization));
      ModelRequest request;
      const auto read = values_of(*load_model(source, request));
      request.quantization = quantization;
      const auto made = values_of(*load_model(saved->source, request));
      ASSERT_EQ(read.size(), made.size());
      for (const auto& [name, value] : made) {
        EXPECT_TRUE(read.at(name).equal(value)) << name;
      }
      // The folder's packing and the requested one must agree.
      EXPECT_NO_THROW(load_model(source, request));
      request.quantization->bits = quantization.bits == 4 ? 8 : 4;
      EXPECT_THAT(message_of([&] { load_model(source, request); }), HasSubstr("are requested"));
    }
  }
}

TEST(Quantization, MergingUnpacksAndTheFolderIsDenseAgain) {
  const auto saved = save_small(0);
  const fs::path packed = saved->folder.path() / "packed", dense = saved->folder.path() / "dense";
  MergedModel model = merge_adapter(saved->source, std::nullopt);
  pack(model, all_kinds().front());
  save_merged(packed, model, nullptr);
  const model::ModelSource source = model::find_model(packed.string());
  save_merged(dense, merge_adapter(source, std::nullopt, at::kFloat), nullptr);
  const model::ModelSource again = model::find_model(dense.string());
  EXPECT_FALSE(again.config.quantization.has_value());
  numbers::expect_values(
      logits_of(*load_model(again, {})), logits_of(*load_model(source, {})), "unpacked");
}

TEST(Quantization, SkippedAndTrainedLinearsStayAsTheyAre) {
  const auto saved = save_small(1);
  ModelRequest request;
  request.quantization = model::Quantization{};
  const size_t all = model_spec(saved->source, request).packing->size();
  request.quantization->skip_modules = {"self_attn"};
  const auto some = model_spec(saved->source, request).packing;
  EXPECT_EQ(some->size(), all - all * 4 / 7);
  EXPECT_EQ(some->count("model.layers.0.self_attn.q_proj"), 0U);
  request.quantization->skip_modules = {"down_proj"};
  AdapterRequest adapter;
  adapter.config.target_modules.names = {"q_proj"};
  adapter.config.modules_to_save = {"up_proj"};
  request.adapter = adapter;
  EXPECT_EQ(model_spec(saved->source, request).packing->size(), all - all * 2 / 7);
  request.quantization->skip_modules = {"downproj"};
  EXPECT_THAT(
      message_of([&] { model_spec(saved->source, request); }), HasSubstr("no module of the model"));
}

TEST(Quantization, PackedWeightsAloneAreNotTrained) {
  EXPECT_NO_THROW(check_trainable(std::nullopt, false));
  EXPECT_NO_THROW(check_trainable(model::Quantization{}, true));
  EXPECT_THAT(
      message_of([] { check_trainable(model::Quantization{}, false); }), HasSubstr("lora.r=16"));
}

/// A folder with inconsistent tensors is rejected when it is opened.
TEST(Quantization, DamagedFoldersAreToldByTensor) {
  const auto saved = save_small(0);
  const auto refusal = [&](const std::string& suffix, const Tensor& other) {
    const fs::path folder = saved->folder.path() / "damaged";
    fs::remove_all(folder);
    MergedModel model = merge_adapter(saved->source, std::nullopt);
    pack(model, all_kinds().front());
    std::erase_if(model.weights, [&](checkpoint::Piece& piece) {
      const bool is_it = piece.name == "transformer.h.0.mlp.c_fc.weight" + suffix;
      if (is_it && other.defined()) {
        piece.data = other.flatten();
        piece.dtype = other.scalar_type();
        piece.shape = other.sizes().vec();
      }
      return is_it && !other.defined();
    });
    save_merged(folder, model, nullptr);
    return message_of([&] { load_model(model::find_model(folder.string()), {}); });
  };
  EXPECT_THAT(refusal(".absmax", {}), HasSubstr("c_fc.weight.absmax"));
  EXPECT_THAT(refusal(".absmax", torch::zeros({3}, at::kByte)), HasSubstr("elements of"));
  EXPECT_THAT(refusal(".quant_state.bitsandbytes__nf4", {}), HasSubstr("no quant_state"));
  EXPECT_THAT(
      refusal(".quant_state.bitsandbytes__nf4", torch::zeros({5}, at::kByte)), HasSubstr("c_fc"));
  EXPECT_THAT(refusal("", torch::zeros({7}, at::kByte)), HasSubstr("it does not have the"));
}

}  // namespace quantization_test
}  // namespace lockstep::train
