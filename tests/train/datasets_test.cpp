// Tests of packing and dataset options.
#include "train/batches/datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/model_config.h"

namespace lockstep::train {
namespace datasets_test {

using ::testing::HasSubstr;

constexpr const char* kLlama =
    R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 32)";
constexpr const char* kT5 =
    R"({"model_type": "t5", "vocab_size": 37, "d_model": 24, "d_kv": 7, "d_ff": 40,
        "num_layers": 1, "num_decoder_layers": 2, "num_heads": 4})";

data::Packing packing(const char* asked, const char* prompt, const std::string& json) {
  config::DataSection section;
  section.packing = asked;
  section.prompt = prompt;
  return packing_of(section, model::parse_model_config(json, "a test"));
}

TEST(Datasets, WhoSaysNothingGetsDocumentsWithPromptsAndBlocksWithout) {
  using enum data::Packing;
  const std::string llama = std::string(kLlama) + "}";
  for (const char* prompt : {"alpaca", "pairs", "chat"}) {
    EXPECT_EQ(packing("auto", prompt, llama), kDocuments) << prompt;
    EXPECT_EQ(packing("auto", prompt, kT5), kPairs) << prompt;
    EXPECT_EQ(packing("concatenate", prompt, llama), kConcatenated) << prompt;
    EXPECT_EQ(packing("none", prompt, llama), kPerDocument) << prompt;
  }
  EXPECT_EQ(packing("auto", "none", llama), kConcatenated);
  EXPECT_EQ(packing("documents", "none", llama), kDocuments);
  EXPECT_EQ(packing("none", "none", llama), kPerDocument);
}

TEST(Datasets, DocumentsAreRefusedWhereTheyWouldNotBeThoseByThemselves) {
  const std::string scaled =
      std::string(kLlama) + R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})";
  EXPECT_EQ(packing("auto", "alpaca", scaled), data::Packing::kPerDocument);
  for (const std::string& json : {scaled, std::string(kT5)}) {
    try {
      packing("documents", "alpaca", json);
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.message(), HasSubstr("data.packing=documents"));
      EXPECT_THAT(error.remedy(), HasSubstr("data.packing=none"));
    }
  }
}

bool packs(const char* asked, const std::string& json, auto&& change) {
  config::Config config;
  config.data.packing = asked;
  change(config);
  return packs_rows(config, model::parse_model_config(json, "a test"));
}

TEST(Datasets, RowsThatAreJudgedOneByOneShareRowsWhereTheyCan) {
  const std::string llama = std::string(kLlama) + "}";
  const auto nothing = [](config::Config&) {};
  EXPECT_TRUE(packs("auto", llama, nothing));
  EXPECT_TRUE(packs("documents", llama, nothing));
  EXPECT_FALSE(packs("none", llama, nothing));
  const auto unlearns = [](const char* method, const char* compatibility) {
    return [=](config::Config& config) {
      config.task.type = "unlearning";
      config.unlearning.method = method;
      config.unlearning.compatibility = compatibility;
    };
  };
  EXPECT_TRUE(packs("auto", llama, unlearns("NPO", "fixed")));
  const auto expect_alone = [](const std::string& json, auto&& change, const char* why) {
    EXPECT_FALSE(packs("auto", json, change)) << why;
    try {
      packs("documents", json, change);
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(why));
      EXPECT_THAT(error.remedy(), HasSubstr("data.packing=none"));
    }
  };
  expect_alone(kT5, nothing, "encoder-decoder models");
  expect_alone(llama, unlearns("NPO", "upstream"), "padding is also learned");
  expect_alone(llama, unlearns("RMU", "fixed"), "RMU compares the states");
  expect_alone(
      llama,
      [](config::Config& config) { config.training.router_aux_loss = "sequence"; },
      "balances the experts per row");
}

}  // namespace datasets_test
}  // namespace lockstep::train
