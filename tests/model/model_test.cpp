// Rotary frequencies, model sources, operation counts and placement.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "model/description.h"
#include "model/operations.h"
#include "model/placement.h"
#include "model/rope.h"
#include "model/source.h"
#include "temporary_folder.h"

namespace lockstep::model {
namespace model_test {

using testing::HasSubstr;

ModelConfig with_rope(const std::string& scaling) {
  return parse_model_config(
      R"({"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64,
          "num_hidden_layers": 1, "rope_scaling": )" +
          scaling + "}",
      "c");
}

void expect_frequencies(
    const RopeFrequencies& got, float attention, const std::vector<float>& wanted) {
  EXPECT_NEAR(got.attention_factor, attention, 1e-6);
  ASSERT_EQ(got.frequencies.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(got.frequencies[i], wanted[i], 4e-7 * wanted[i]) << i;
  }
}

// Reference values from transformers 5.23.
TEST(Rope, FrequenciesOfEveryType) {
  const std::vector<float> plain = {
      1.0F, 0.3162278F, 0.1F, 0.03162278F, 0.01F, 0.003162278F, 0.001F, 0.0003162278F};
  expect_frequencies(rope_frequencies(with_rope("null"), 10), 1, plain);
  expect_frequencies(
      rope_frequencies(with_rope(R"({"rope_type": "linear", "factor": 2.5})"), 10),
      1,
      {0.4F, 0.1264911F, 0.04F, 0.01264911F, 0.004F, 0.001264911F, 0.0004F, 0.0001264911F});
  const auto dynamic = with_rope(R"({"rope_type": "dynamic", "factor": 2.0})");
  expect_frequencies(rope_frequencies(dynamic, 50), 1, plain);
  expect_frequencies(
      rope_frequencies(dynamic, 100),
      1,
      {1.0F,
       0.2839451F,
       0.08062484F,
       0.02289303F,
       0.006500365F,
       0.001845747F,
       0.0005240909F,
       0.0001488131F});
  expect_frequencies(
      rope_frequencies(
          with_rope(
              R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 32})"),
          10),
      1,
      {1.0F,
       0.09583998F,
       0.0125F,
       0.003952847F,
       0.00125F,
       0.0003952847F,
       0.000125F,
       3.952847e-05F});
  expect_frequencies(
      rope_frequencies(
          with_rope(
              R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})"),
          10),
      1.138629436F,
      {1.0F, 0.1976424F, 0.025F, 0.007905695F, 0.0025F, 0.0007905695F, 0.00025F, 7.905695e-05F});
  expect_frequencies(
      rope_frequencies(
          with_rope(
              R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8,
                        "beta_slow": 2, "mscale": 0.7, "mscale_all_dim": 0.3, "truncate": false})"),
          10),
      1.05323768F,
      {1.0F, 0.07905694F, 0.025F, 0.007905695F, 0.0025F, 0.0007905695F, 0.00025F, 7.905695e-05F});
}

TEST(Rope, LongRopeChangesWithTheLength) {
  const auto config = with_rope(
      R"({"rope_type": "longrope", "original_max_position_embeddings": 32,
          "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
          "long_factor": [2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]})");
  EXPECT_TRUE(rope_depends_on_length(config));
  expect_frequencies(
      rope_frequencies(config, 32),
      1.095445115F,
      {1.0F,
       0.2874798F,
       0.08333334F,
       0.02432521F,
       0.007142857F,
       0.002108185F,
       0.000625F,
       0.0001860163F});
  expect_frequencies(
      rope_frequencies(config, 33),
      1.095445115F,
      {0.5F,
       0.1264911F,
       0.03333334F,
       0.009035079F,
       0.0025F,
       0.0007027284F,
       0.0002F,
       5.749596e-05F});
}

constexpr const char* kConfig =
    R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 9})";

std::string failure(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Source, FolderFileAndPreset) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "config.json", kConfig);
  auto source = find_model(folder.path().string(), "/nowhere");
  EXPECT_EQ(source.kind, ModelSource::Kind::kFolder);
  EXPECT_FALSE(source.has_weights);
  EXPECT_EQ(source.config.layers, 2);
  write_file_atomically(folder.path() / "model.safetensors", "x");
  EXPECT_TRUE(find_model(folder.path().string(), "/nowhere").has_weights);
  source = find_model((folder.path() / "config.json").string(), "/nowhere");
  EXPECT_EQ(source.kind, ModelSource::Kind::kConfigFile);
  EXPECT_FALSE(source.has_weights);
  EXPECT_EQ(preset_source("gpt2").config.layers, 12);
}

TEST(Source, PickledWeightsAndMissingConfigAreErrors) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      failure([&] { find_model(folder.path().string(), "/nowhere"); }),
      HasSubstr("has no config.json"));
  write_file_atomically(folder.path() / "config.json", kConfig);
  write_file_atomically(folder.path() / "pytorch_model.bin", "x");
  EXPECT_THAT(
      failure([&] { find_model(folder.path().string(), "/nowhere"); }),
      AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("safe_serialization")));
}

TEST(Source, HubNameInTheLocalCache) {
  const TemporaryFolder cache;
  const auto repository = cache.path() / "models--openai-community--gpt2";
  const auto snapshot = repository / "snapshots" / "0123abc";
  create_folders(snapshot);
  create_folders(repository / "refs");
  write_file_atomically(repository / "refs" / "main", "0123abc\n");
  write_file_atomically(snapshot / "config.json", kConfig);
  for (const char* name : {"openai-community/gpt2", "gpt2", "openai-community/gpt2@0123abc"}) {
    const auto source = find_model(name, cache.path());
    EXPECT_EQ(source.kind, ModelSource::Kind::kHub) << name;
    EXPECT_EQ(source.folder, snapshot);
  }
  EXPECT_THAT(
      failure([&] { find_model("openai-community/gpt2@v2", cache.path()); }),
      AllOf(HasSubstr("no snapshot of revision \"v2\""), HasSubstr("hf download")));
  EXPECT_THAT(
      failure([&] { find_model("org/other", cache.path()); }),
      AllOf(HasSubstr("hf download org/other"), HasSubstr(cache.path().string())));
  EXPECT_THAT(
      failure([&] { find_model("gpt2-medium", cache.path()); }),
      HasSubstr("model.preset=gpt2-medium"));
  write_file_atomically(repository / "refs" / "main", "../../evil");
  EXPECT_THAT(
      failure([&] { find_model("gpt2", cache.path()); }),
      HasSubstr("does not contain a commit hash"));
}

TEST(Source, NamesThatAreNoneAreRefused) {
  for (const char* name : {"", "../x", "a/b/c", "org/..", "or g/x", "x@../y", "-x/y"}) {
    EXPECT_NE(failure([&] { find_model(name, "/nowhere"); }), "no error") << name;
  }
}

TEST(Operations, CountsWhatGpt2Multiplies) {
  const ModelConfig config = preset("gpt2");
  const auto cost = operations_per_token(config, 1024);
  EXPECT_DOUBLE_EQ(cost.projections, 2.0 * 12 * 12 * 768 * 768);
  EXPECT_DOUBLE_EQ(cost.head, 2.0 * 768 * 50257);
  EXPECT_DOUBLE_EQ(cost.attention, 12 * 4.0 * 768 * 512.5);
  EXPECT_DOUBLE_EQ(cost.training(), 3 * cost.forward());
}

TEST(Operations, WindowsBoundAttention) {
  const auto config = [](int window) {
    return parse_model_config(
        R"({"model_type": "mistral", "num_hidden_layers": 1, "sliding_window": )" +
            std::to_string(window) + "}",
        "c");
  };
  // Five tokens with a window of two attend to 1, 2, 2, 2, 2 positions.
  EXPECT_DOUBLE_EQ(operations_per_token(config(2), 5).attention, 4.0 * 4096 * 9 / 5);
  EXPECT_DOUBLE_EQ(operations_per_token(config(5), 5).attention, 4.0 * 4096 * 3);
}

TEST(Placement, FillsDevicesInOrder) {
  const auto config = parse_model_config(
      R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 3,
          "num_attention_heads": 2})",
      "c");
  const auto units = unit_bytes(config, 2, 5);
  ASSERT_EQ(units.size(), 5);
  EXPECT_EQ(units[0], 2 * 10 * 8);
  EXPECT_EQ(units[1], 2 * (4 * 64 + 3 * 128 + 16) + 2 * (2 * 8 * 5));
  EXPECT_EQ(units[4], 2 * (8 + 80));
  const int64_t block = units[1];
  const auto placed = place_units(
      config, units, {{"cuda:0", units[0] + block + 10}, {"cuda:1", 2 * block}, {"cpu", 1000}});
  EXPECT_EQ(placed.device_of_unit, (std::vector<int64_t>{0, 0, 1, 1, 2}));
  const auto reserved =
      place_units(config, units, {{"cuda:0", units[0] + block + 10}, {"cpu", 1 << 20}}, 11);
  EXPECT_EQ(reserved.device_of_unit, (std::vector<int64_t>{0, 1, 1, 1, 1}));
  EXPECT_THAT(
      failure([&] { place_units(config, units, {{"cuda:0", 100}, {"cpu", 2 * block}}); }),
      AllOf(HasSubstr("cuda:0"), HasSubstr("the model requires")));
}

TEST(Placement, ATiedHeadStandsWithTheEmbedding) {
  const auto config = preset("gpt2-tiny");
  const auto units = unit_bytes(config, 4, 0);
  EXPECT_EQ(units.back(), 4 * 2 * 192);
  const auto placed = place_units(
      config,
      units,
      {{"cuda:0", units[0] + units[1] + units.back() + 1}, {"cpu", int64_t{1} << 30}});
  EXPECT_EQ(placed.device_of_unit.front(), 0);
  EXPECT_EQ(placed.device_of_unit.at(1), 0);
  EXPECT_EQ(placed.device_of_unit.at(2), 1);
  EXPECT_EQ(placed.device_of_unit.back(), 0);
}

}  // namespace model_test
}  // namespace lockstep::model
