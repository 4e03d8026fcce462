// Parsing and saving of classifier heads.
#include "model/head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/description.h"
#include "model/model_config.h"

namespace lockstep::model {
namespace head_test {

ModelConfig config_of(const std::string& more) {
  return parse_model_config(
      R"({"model_type": "qwen2", "vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "tie_word_embeddings": true)" +
          more + "}",
      "c");
}

TEST(Head, IsReadFromTheArchitecture) {
  EXPECT_FALSE(config_of("").head.classifies());
  EXPECT_FALSE(
      config_of(R"(, "architectures": ["Qwen2ForCausalLM"], "num_labels": 3)").head.classifies());
  const std::string classifier = R"(, "architectures": ["Qwen2ForSequenceClassification"])";
  EXPECT_EQ(config_of(classifier).head.labels, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(config_of(classifier + R"(, "num_labels": 3)").head_rows(), 3);
  EXPECT_EQ(
      config_of(classifier + R"(, "id2label": {"1": "yes", "0": "no"})").head.labels,
      (std::vector<std::string>{"no", "yes"}));
  try {
    config_of(classifier + R"(, "id2label": {"1": "yes", "2": "no"})");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::HasSubstr("no name for class 0 of 2"));
  }
}

TEST(Head, OfClassesIsAParameterOfItsOwnAndSaved) {
  const ModelConfig language = config_of("");
  const ModelConfig config =
      with_head(language, {HeadSpec::Kind::kClassifier, {"bad", "so so", "good"}});
  EXPECT_TRUE(language.ties_head());
  EXPECT_FALSE(config.ties_head());
  const ParameterSpec head = parameters_of(config).back();
  EXPECT_EQ(head.name, "score.weight");
  EXPECT_EQ(head.name, head_name(config));
  EXPECT_EQ(head.shape, (std::vector<int64_t>{3, 64}));
  const std::string text = to_json(config, "float32");
  const auto saved = nlohmann::json::parse(text);
  EXPECT_EQ(saved["architectures"][0], "Qwen2ForSequenceClassification");
  EXPECT_EQ(saved["label2id"]["good"], 2);
  EXPECT_EQ(saved["tie_word_embeddings"], true);
  EXPECT_EQ(parse_model_config(text, "c").head, config.head);
  EXPECT_EQ(to_json(with_head(config, {}), "float32"), to_json(language, "float32"));
}

TEST(Head, OfClassesIsRefusedWhereItCannotBe) {
  EXPECT_THROW(with_head(preset("gpt2-tiny"), {HeadSpec::Kind::kClassifier, {}}), Error);
}

}  // namespace head_test
}  // namespace lockstep::model
