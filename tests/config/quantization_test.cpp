// Tests the section quantization: BitsAndBytesConfig's names, and invalid values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/harness.h"

namespace lockstep::config {
namespace quantization_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Quantization, NamesOfBitsandbytesAreOtherNames) {
  const Harness harness;
  EXPECT_EQ(harness.run({}).config.quantization, QuantizationSection{});
  const auto of = [&](const std::vector<std::string>& arguments) {
    return harness.run(arguments).config.quantization;
  };
  EXPECT_EQ(of({"quantization.load_in_8bit=true"}), of({"quantization.bits=8"}));
  EXPECT_EQ(
      of({"quantization.load_in_4bit=true",
          "quantization.bnb_4bit_quant_type=nf4",
          "quantization.bnb_4bit_use_double_quant=true",
          "quantization.llm_int8_skip_modules=[q_proj, lm_head]"}),
      of({"quantization.bits=4",
          "quantization.type=nf4",
          "quantization.double_quant=true",
          "quantization.skip_modules=[q_proj, lm_head]"}));
  EXPECT_EQ(
      of({"quantization.load_in_4bit=true"}).type,
      "fp4");  // the default of BitsAndBytesConfig, not of Lockstep
  EXPECT_EQ(of({"quantization.bits=4"}).type, std::nullopt);
  EXPECT_EQ(of({"quantization.load_in_4bit=false"}), QuantizationSection{});
  EXPECT_THAT(
      of({"quantization.bits=8", "quantization.skip_modules=[down_proj]"}).skip_modules,
      ElementsAre("down_proj"));
}

/// QLoRA recipes use paged optimizers; parallel.offload_optimizer replaces paging.
TEST(Quantization, PagedOptimizersAreTheOthers) {
  const Harness harness;
  const auto optim = [&](const std::string& name) {
    return harness.run({"training.optim=" + name}).config.training.optim;
  };
  EXPECT_EQ(optim("paged_adamw_32bit"), "adamw_torch_fused");
  EXPECT_EQ(optim("paged_lion_32bit"), "lion_32bit");
  EXPECT_EQ(optim("paged_adamw_8bit"), "paged_adamw_8bit");
  EXPECT_THAT(harness.error({"training.optim=paged_sgd"}), HasSubstr("paged_adamw_32bit"));
}

TEST(Quantization, WhatDoesNotFitIsTold) {
  const Harness harness;
  const std::string q = "quantization.";
  EXPECT_THAT(harness.error({q + "bits=3"}), HasSubstr("must be 4 or 8"));
  EXPECT_THAT(harness.error({q + "bits=4", q + "block_size=48"}), HasSubstr("a power of two"));
  EXPECT_THAT(harness.error({q + "bits=4", q + "type=int4"}), HasSubstr("not one of nf4, fp4"));
  EXPECT_THAT(
      harness.error({q + "bits=8", q + "type=nf4"}), HasSubstr("8-bit quantization has no type"));
  EXPECT_THAT(harness.error({q + "type=nf4"}), HasSubstr("add bits=4"));
  EXPECT_THAT(
      harness.error({q + "bits=4", q + "load_in_8bit=true"}),
      HasSubstr("they are the same setting"));
  EXPECT_THAT(
      harness.error({q + "bits=4", q + "bnb_4bit_compute_dtype=bfloat16"}),
      HasSubstr("training.bf16=true"));
  EXPECT_EQ(
      harness.error({q + "bits=4", q + "bnb_4bit_compute_dtype=bfloat16", "training.bf16=true"}),
      "");
}

}  // namespace quantization_test
}  // namespace lockstep::config
