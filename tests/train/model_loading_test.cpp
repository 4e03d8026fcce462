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

void save(nn::LanguageModel& model, const std::filesystem::path& folder) {
  std::vector<checkpoint::Piece> pieces;
  for (const auto& [name, value] : values_of(model)) {
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
  for (const int family : {0, 1}) {  // a tied head, and one of its own
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
    if (config.ties_head()) {  // its head was never lost
      EXPECT_NO_THROW(load_model(saved, {}));
    } else {
      EXPECT_THROW(load_model(saved, {}), Error);
    }
  }
}

}  // namespace model_loading_test
}  // namespace lockstep::train
