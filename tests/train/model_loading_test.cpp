// Tests of loading models from folders.
#include "train/weights/model_loading.h"

#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "nn/testing.h"
#include "temporary_folder.h"

namespace lockstep::train {
namespace model_loading_test {

const model::HeadSpec kThree{model::HeadSpec::Kind::kClassifier, {"bad", "so so", "good"}};

std::map<std::string, at::Tensor> values_of(nn::LanguageModel& model) {
  std::map<std::string, at::Tensor> values;
  model.visit_parameters(
      [&](const std::string& name, at::Tensor& value) { values[name] = value.detach(); });
  return values;
}

void save(
    nn::LanguageModel& model,
    const std::filesystem::path& folder,
    const std::map<std::string, at::Tensor>& beside = {}) {
  std::vector<checkpoint::Piece> pieces;
  auto values = values_of(model);
  values.insert(beside.begin(), beside.end());
  for (const auto& [name, value] : values) {
    checkpoint::Piece piece;
    piece.file_group = "model";
    piece.name = name;
    piece.dtype = at::kFloat;
    piece.shape = value.sizes().vec();
    piece.data = value.flatten();
    pieces.push_back(piece);
  }
  comm::Communicator alone = comm::Communicator::alone();
  checkpoint::save_model(
      folder, pieces, {{"config.json", model::to_json(model.config(), "float32")}}, alone);
}

TEST(ModelLoading, AClassifierBeginsOnALanguageModelsBody) {
  const TemporaryFolder folder;
  for (const int family : {0, 1}) {  // a tied head, and a separate one
    const auto config = model::parse_model_config(nn::kSmallModels[family], "test");
    const auto language = nn::small_model(config);
    save(*language, folder.path() / "language");
    const model::ModelSource source = model::find_model((folder.path() / "language").string());
    ModelRequest request;
    request.task.head = kThree;
    const auto classifier = load_model(source, request);
    const auto before = values_of(*language);
    for (const auto& [name, value] : values_of(*classifier)) {
      const auto same = before.find(name);
      EXPECT_EQ(same == before.end(), name == "score.weight") << name;
      EXPECT_TRUE(same == before.end() ? value.ne(0).all().item<bool>() : value.equal(same->second))
          << name;
    }

    save(*classifier, folder.path() / "classifier");
    const model::ModelSource saved = model::find_model((folder.path() / "classifier").string());
    EXPECT_EQ(saved.config.head, kThree);
    const auto again = values_of(*load_model(saved, request));
    EXPECT_TRUE(again.at("score.weight").equal(values_of(*classifier).at("score.weight")));
    request.task.head.labels.emplace_back("no idea");
    EXPECT_EQ(values_of(*load_model(saved, request)).at("score.weight").size(0), 4);
    if (config.ties_head()) {  // a tied head cannot be missing
      EXPECT_NO_THROW(load_model(saved, {}));
    } else {
      EXPECT_THROW(load_model(saved, {}), Error);
    }
  }
}

/// GLM-4.5 folders contain one more layer. The score correction is float32 in every model.
TEST(ModelLoading, LayersThatPredictFurtherTokensArePassedOver) {
  const TemporaryFolder folder;
  const auto config = model::parse_model_config(
      R"({"model_type": "glm4_moe", "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "n_routed_experts": 4, "intermediate_size": 6,
          "num_experts_per_tok": 2, "moe_intermediate_size": 3})",
      "test");
  const auto model = nn::small_model(config);
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  const at::Tensor exact = at::tensor({5.001F, 5.002F, -1.0001F, 0.3F});
  values_of(*model).at(name).copy_(exact);
  const auto warnings_of = [&](const char* further) {
    const auto path = folder.path() / further;
    save(*model, path, {{further, at::ones({3})}});
    ModelRequest request;
    request.dtype = at::kBFloat16;
    testing::internal::CaptureStderr();
    const auto loaded = load_model(model::find_model(path.string()), request);
    EXPECT_TRUE(values_of(*loaded).at(name).equal(exact));
    EXPECT_EQ(values_of(*loaded).at("lm_head.weight").scalar_type(), at::kBFloat16);
    return testing::internal::GetCapturedStderr();
  };
  const std::string told = warnings_of("model.layers.2.eh_proj.weight");
  EXPECT_NE(told.find("predict further tokens"), std::string::npos) << told;
  EXPECT_EQ(told.find("does not have"), std::string::npos) << told;
  EXPECT_NE(warnings_of("model.layers.1.eh_proj.weight").find("does not have"), std::string::npos);
}

}  // namespace model_loading_test
}  // namespace lockstep::train
