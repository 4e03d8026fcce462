// Quantized linears of a model, and its quantization_config.
#include "model/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/model_config.h"

namespace lockstep::model {
namespace quantization_test {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

ModelConfig llama_with(const std::string& quantization) {
  return parse_model_config(
      R"({"model_type": "llama", "num_hidden_layers": 2, "quantization_config": )" + quantization +
          "}",
      "test");
}

std::string problems_of(const std::string& quantization) {
  try {
    llama_with(quantization);
  } catch (const Error& error) {
    return std::string(error.what());
  }
  return "";
}

TEST(QuantizationConfig, IsReadAndWrittenAsTransformersHasIt) {
  // Old configs lack the two keys that start with _; the default type is fp4.
  const ModelConfig old = llama_with(R"({"load_in_4bit": true})");
  ASSERT_TRUE(old.quantization.has_value());
  EXPECT_EQ(old.quantization->type, Quantization::Type::kFp4);
  const ModelConfig config = llama_with(
      R"({"_load_in_4bit": true, "_load_in_8bit": false, "load_in_4bit": true, "load_in_8bit": false,
          "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
          "bnb_4bit_compute_dtype": "bfloat16", "llm_int8_skip_modules": ["lm_head", "o_proj"],
          "quant_method": "bitsandbytes"})");
  EXPECT_EQ(config.quantization->bits, 4);
  EXPECT_TRUE(config.quantization->double_quant);
  const ModelConfig again = parse_model_config(to_json(config, "bfloat16"), "again");
  EXPECT_EQ(again.quantization, config.quantization);
  ModelConfig dense = config;
  dense.quantization.reset();
  EXPECT_THAT(to_json(dense, "bfloat16"), Not(HasSubstr("quantization_config")));
  Quantization plain;
  plain.bits = 8;
  const auto written = to_json(plain, config);
  EXPECT_EQ(written.size(), 13U);
  EXPECT_TRUE(written["load_in_8bit"] == true && written["_load_in_4bit"] == false);
  EXPECT_TRUE(written["llm_int8_skip_modules"].is_null());
}

TEST(QuantizationConfig, WhatIsNotSupportedIsTold) {
  EXPECT_THAT(problems_of(R"({"quant_method": "gptq"})"), HasSubstr("bitsandbytes is"));
  EXPECT_THAT(problems_of("{}"), HasSubstr("load_in_4bit"));
  EXPECT_THAT(problems_of("3"), HasSubstr("not an object"));
  EXPECT_THAT(
      problems_of(R"({"load_in_8bit": true, "llm_int8_has_fp16_weight": true})"),
      HasSubstr("llm_int8_has_fp16_weight"));
  EXPECT_THAT(
      problems_of(R"({"load_in_4bit": true, "bnb_4bit_quant_type": "nf3"})"),
      HasSubstr("neither nf4 nor fp4"));
}

TEST(QuantizationConfig, LinearsOfTheBlocksArePackedAlone) {
  const auto llama = packed_linears({}, preset("llama2-7b"));
  EXPECT_EQ(llama.size(), 32U * 7);
  EXPECT_THAT(llama, Not(Contains("lm_head")));
  EXPECT_EQ(packed_linears({}, preset("gpt2")).size(), 12U * 4);
  for (const std::string& name : packed_linears({}, preset("t5-small"))) {
    EXPECT_FALSE(name.ends_with(".wo")) << name;
  }
  Quantization some;
  some.skip_modules = {"mlp", "layers.0.self_attn.q_proj", "lm_head"};
  EXPECT_EQ(packed_linears(some, preset("llama2-7b")).size(), 32U * 4 - 1);
  some.skip_modules = {"mlpp"};
  EXPECT_THROW(packed_linears(some, preset("llama2-7b")), Error);
  some.skip_modules = {"layers"};
  EXPECT_THROW(packed_linears(some, preset("llama2-7b")), Error);
}

}  // namespace quantization_test
}  // namespace lockstep::model
