// Assignment of layers to pipeline stages.
#include "model/split.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::model {
namespace split_test {

ModelConfig nine_layers() {
  return parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 101, "n_embd": 24, "n_layer": 9, "n_head": 3, "n_positions": 16})",
      "c");
}

TEST(Split, IsEvenInCostAndCountsTheHead) {
  ModelConfig config = nine_layers();
  const auto layers = [&](const SplitRequest& request) {
    std::vector<int64_t> result;
    for (const ModelPart& part : split_model(config, request)) {
      result.push_back(part.layers);
    }
    return result;
  };
  // The head's 2 * 24 * 101 operations per token are a third of a layer's.
  EXPECT_EQ(layers({.stages = 2, .sequence_length = 8}), (std::vector<int64_t>{5, 4}));
  config.vocab_size = 2003;  // now equal to nearly seven layers
  EXPECT_EQ(layers({.stages = 2, .sequence_length = 8}), (std::vector<int64_t>{8, 1}));
  EXPECT_EQ(layers({.stages = 2, .split = "parameters"}), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(layers({.stages = 3, .split = "2,3,4"}), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(layers({.stages = 1}), (std::vector<int64_t>{9}));
}

TEST(Split, RefusesWhatCannotBe) {
  const ModelConfig config = nine_layers();
  const auto message = [&](const SplitRequest& request) -> std::string {
    try {
      (void)split_model(config, request);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.message();
    }
    return "no error";
  };
  EXPECT_NE(
      message({.stages = 10}).find("10 pipeline stages for a model with 9"), std::string::npos);
  EXPECT_NE(message({.stages = 2, .split = "4,4"}).find("8 layers"), std::string::npos);
  EXPECT_NE(message({.stages = 2, .split = "3,3,3"}).find("3 stages"), std::string::npos);
  EXPECT_NE(message({.stages = 3, .split = "4,0,5"}).find("stage 1"), std::string::npos);
  EXPECT_NE(message({.stages = 2, .split = "4,x"}).find("not a list"), std::string::npos);
}

}  // namespace split_test
}  // namespace lockstep::model
