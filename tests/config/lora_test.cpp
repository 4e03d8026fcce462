// Tests the section lora: its maps in files and on the command line, and invalid values.
#include <gmock/gmock.h>

#include "config/harness.h"
#include "config/print.h"

namespace lockstep::config {
namespace lora_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Lora, IsOffWhereNoKeyIsGiven) {
  const Harness harness;
  EXPECT_EQ(harness.run({}).config.lora, LoraSection{});
  EXPECT_NE(harness.run({"lora.r=8"}).config.lora, LoraSection{});
  harness.write("nothing.yaml", "lora:\n");
  EXPECT_EQ(harness.run({"-c", "@/nothing.yaml"}).config.lora, LoraSection{});
}

TEST(Lora, MapsKeepTheirOrderAndAreReadAgainAsTheyAreWritten) {
  const Harness harness;
  harness.write(
      "run.yaml",
      "lora:\n  target_modules: [q_proj, up_proj]\n  rank_pattern:\n    up_proj: 4\n"
      "    'layers\\.0\\..*': 2\n  alpha_pattern: {q_proj: 2.5}\n");
  const Resolution found = harness.run({"-c", "@/run.yaml", "lora.r=16"});
  const LoraSection& lora = found.config.lora;
  EXPECT_THAT(lora.target_modules, ElementsAre("q_proj", "up_proj"));
  EXPECT_THAT(lora.rank_pattern, ElementsAre(Pair("up_proj", 4), Pair("layers\\.0\\..*", 2)));
  EXPECT_THAT(lora.alpha_pattern, ElementsAre(Pair("q_proj", 2.5)));
  EXPECT_EQ(lora.r, 16);
  harness.write("again.yaml", to_yaml(found.config, found.origins));
  EXPECT_EQ(harness.run({"-c", "@/again.yaml"}).config.lora, lora);
  const LoraSection typed =
      harness.run({"lora.rank_pattern={up_proj: 4}", "lora.bias=all"}).config.lora;
  EXPECT_THAT(typed.rank_pattern, ElementsAre(Pair("up_proj", 4)));
  EXPECT_THAT(
      harness.run({"--lora.rank_pattern", R"({"up_proj": 4})"}).config.lora.rank_pattern,
      ElementsAre(Pair("up_proj", 4)));
}

TEST(Lora, WhatDoesNotFitIsTold) {
  const Harness harness;
  for (const auto& [argument, told] : std::vector<std::pair<std::string, std::string>>{
           {"lora.r=0", "at least 1"},
           {"lora.lora_alpha=0", "above 0"},
           {"lora.lora_dropout=1", "at least 0 and below 1"},
           {"lora.rank_pattern={q: 1.5}", "must be integers"},
           {"lora.rank_pattern={q: x}", "is not a map of numbers"},
           {"lora.rank_pattern=4", "is not a map of numbers"},
           {"lora.alpha_pattern={q: 0}", "numbers above 0"},
           {"lora.layers_to_transform=[one]", "'one' is not a layer index"},
           {"lora.bias=some", "is not one of none, all, lora_only"},
           {"lora.init_lora_weights=eva",
            "is not one of true, false, gaussian, orthogonal, pissa, olora"},
           {"lora.lora_alhpa=3", "Did you mean 'lora.lora_alpha'?"}}) {
    EXPECT_THAT(harness.error({argument}), HasSubstr(told)) << argument;
  }
  EXPECT_THAT(
      harness.error({"lora.adapter=a", "lora.r=4"}), HasSubstr("other keys of lora are set too"));
  EXPECT_EQ(harness.error({"lora.adapter=a", "lora.lora_dropout=0.1"}), "");
}

}  // namespace lora_test
}  // namespace lockstep::config
