// Parsing, validation and saving of config.json.
#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/file.h"
#include "model/description.h"
#include "temporary_folder.h"

namespace lockstep::model {
namespace model_config_test {

using nlohmann::json;
using testing::HasSubstr;

/// Returns the error message for the text.
std::string problems(const std::string& text) {
  try {
    parse_model_config(text, "x/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData) << text;
    EXPECT_THAT(error.message(), HasSubstr("x/config.json"));
    return error.message();
  }
  return "no error";
}

TEST(ModelConfig, DefaultsAreTheFamilies) {
  const ModelConfig gpt2 = parse_model_config(R"({"model_type": "gpt2"})", "c");
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_EQ(gpt2.hidden_size, 768);
  EXPECT_EQ(gpt2.intermediate_size, 3072);
  EXPECT_EQ(gpt2.activation, Activation::kGeluTanh);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  EXPECT_EQ(gpt2.rope.type, RopeType::kNone);
  EXPECT_EQ(position_limit(gpt2), 1024);
  EXPECT_EQ(gpt2.eos_token_ids, std::vector<int64_t>{50256});

  const ModelConfig llama = parse_model_config(R"({"model_type": "llama"})", "c");
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_EQ(llama.intermediate_size, 11008);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.qkv_bias);
  EXPECT_EQ(position_limit(llama), std::nullopt);

  const ModelConfig mistral = parse_model_config(R"({"model_type": "mistral"})", "c");
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.sliding_windows, std::vector<int64_t>(32, 4096));
  EXPECT_EQ(
      parse_model_config(R"({"model_type": "mistral", "sliding_window": null})", "c")
          .sliding_windows,
      std::vector<int64_t>(32, 0));

  const ModelConfig qwen2 = parse_model_config(R"({"model_type": "qwen2"})", "c");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attention_out_bias);
  EXPECT_EQ(qwen2.sliding_windows, std::vector<int64_t>(32, 0));
  EXPECT_EQ(qwen2.bos_token_id, std::nullopt);
  EXPECT_FALSE(qwen2.head_norms);

  const ModelConfig qwen3 = parse_model_config(R"({"model_type": "qwen3"})", "c");
  EXPECT_TRUE(qwen3.head_norms);
  EXPECT_FALSE(qwen3.qkv_bias || qwen3.attention_out_bias || qwen3.mlp_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.kv_heads, 32);
  EXPECT_EQ(qwen3.intermediate_size, 22016);
  EXPECT_EQ(qwen3.sliding_windows, std::vector<int64_t>(32, 0));
  EXPECT_TRUE(parse_model_config(R"({"model_type": "qwen3", "attention_bias": true})", "c")
                  .attention_out_bias);
}

TEST(ModelConfig, T5HasAnEncoderAndADecoder) {
  const ModelConfig first = parse_model_config(R"({"model_type": "t5"})", "c");
  EXPECT_EQ(first.encoder_layers, 6);
  EXPECT_EQ(first.layers, 12);
  EXPECT_EQ(first.head_dim, 64);
  EXPECT_EQ(first.activation, Activation::kRelu);
  EXPECT_FALSE(first.gated_mlp);
  EXPECT_TRUE(first.tie_word_embeddings);
  EXPECT_DOUBLE_EQ(first.head_scale, 1 / std::sqrt(512.0));
  EXPECT_EQ(first.attention_scale(0), 1);
  EXPECT_EQ(first.mlp_dropout, 0.1);
  EXPECT_EQ(first.decoder_start_token_id, 0);
  EXPECT_EQ(first.eos_token_ids, std::vector<int64_t>{1});
  EXPECT_EQ(position_limit(first), std::nullopt);
  EXPECT_EQ(block_layers(first, 5).front().prefix, "encoder.block.5.layer.0.layer_norm");
  EXPECT_EQ(block_layers(first, 6).front().prefix, "decoder.block.0.layer.0.layer_norm");
  const ModelConfig flan = preset("flan-t5-small");
  EXPECT_EQ(flan.activation, Activation::kGeluTanh);
  EXPECT_TRUE(flan.gated_mlp);
  EXPECT_FALSE(flan.tie_word_embeddings);
  EXPECT_EQ(flan.head_scale, 1);
  EXPECT_EQ(parameter_count(flan), 76961152);
  EXPECT_EQ(parameter_count(preset("t5-small")), 60506624);
  // Newer configs of a model with an untied head.
  const ModelConfig newer = parse_model_config(
      R"({"model_type": "t5", "num_decoder_layers": 2, "tie_word_embeddings": true,
          "scale_decoder_outputs": false, "d_model": 60})",
      "c");
  EXPECT_FALSE(newer.tie_word_embeddings);
  EXPECT_EQ(newer.layers, 8);
  const ModelConfig smaller = with_first_layers(newer, 3);
  EXPECT_EQ(smaller.encoder_layers, 3);
  EXPECT_EQ(smaller.layers, 5);
}

TEST(ModelConfig, T5sThatCannotBeBuiltSayWhy) {
  const std::string told = problems(
      R"({"model_type": "t5", "feed_forward_proj": "split-gelu", "is_encoder_decoder": false,
          "relative_attention_max_distance": 16, "decoder_start_token_id": 99, "vocab_size": 90,
          "pad_token_id": null})");
  for (const char* part :
       {"feed_forward_proj", "is_encoder_decoder", "max_distance", "decoder_start_token_id"}) {
    EXPECT_THAT(told, HasSubstr(part));
  }
  EXPECT_THAT(
      problems(R"({"model_type": "gpt2", "is_encoder_decoder": true})"),
      HasSubstr("only false is"));
}

TEST(ModelConfig, ExplicitNullOfKeyValueHeadsIsAsManyAsHeads) {
  const auto config =
      parse_model_config(R"({"model_type": "mistral", "num_key_value_heads": null})", "c");
  EXPECT_EQ(config.kv_heads, 32);
}

TEST(ModelConfig, Qwen2WindowsByLayer) {
  const auto first = parse_model_config(
      R"({"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": true,
          "sliding_window": 7, "max_window_layers": 2})",
      "c");
  EXPECT_EQ(first.sliding_windows, (std::vector<int64_t>{0, 0, 7, 7}));
  const auto named = parse_model_config(
      R"({"model_type": "qwen2", "num_hidden_layers": 3, "use_sliding_window": true, "sliding_window": 7,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
      "c");
  EXPECT_EQ(named.sliding_windows, (std::vector<int64_t>{7, 0, 7}));
  EXPECT_THAT(
      problems(
          R"({"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]})"),
      HasSubstr("requires use_sliding_window"));
  EXPECT_THAT(
      problems(
          R"({"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["linear_attention"]})"),
      HasSubstr("\"linear_attention\" is not supported"));
  EXPECT_THAT(
      problems(
          R"({"model_type": "llama", "num_hidden_layers": 2, "layer_types": ["full_attention"]})"),
      HasSubstr("1 entries for 2 layers"));
}

TEST(ModelConfig, AllProblemsAtOnceWithTheirKeys) {
  const std::string message = problems(
      R"({"model_type": "llama", "vocab_size": -5, "hidden_size": "big", "num_hidden_layers": 0,
          "num_attention_heads": 99999999999999999999, "rms_norm_eps": [], "hidden_act": "gelo",
          "tie_word_embeddings": 1, "max_position_embeddings": 1e99,
          "quantization_config": {"quant_method": "gptq"}, "attn_logit_softcapping": 50.0})");
  for (const char* part :
       {"vocab_size: -5 is not an integer from 1",
        "hidden_size: \"big\"",
        "num_hidden_layers: 0",
        "num_attention_heads: 1e+20",
        "rms_norm_eps: [] is not a number",
        "hidden_act: \"gelo\"",
        "Did you mean 'gelu'",
        "tie_word_embeddings: 1 is not true or false",
        "max_position_embeddings: 1e+99",
        "quantization_config",
        "attn_logit_softcapping: 50.0"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(ModelConfig, HostileTexts) {
  EXPECT_THAT(problems(""), HasSubstr("not JSON"));
  EXPECT_THAT(problems("[]"), HasSubstr("not an object"));
  EXPECT_THAT(problems("null"), HasSubstr("not an object"));
  EXPECT_THAT(problems("{}"), HasSubstr("model_type: is missing"));
  EXPECT_THAT(problems(R"({"model_type": 3})"), HasSubstr("model_type: 3 is not a string"));
  EXPECT_THAT(problems(R"({"model_type": "lama"})"), HasSubstr("Did you mean 'llama'"));
  EXPECT_THAT(problems(R"({"model_type": "electra"})"), HasSubstr("gpt2, llama, mistral, qwen2"));
  EXPECT_THAT(problems(R"({"model_type": "gpt2", "n_embd": null})"), HasSubstr("n_embd: null"));
  EXPECT_THAT(
      problems(R"({"model_type": "gpt2", "n_embd": 4611686018427387904})"),
      HasSubstr("n_embd: 4611686018427387904"));
  EXPECT_THAT(
      problems(R"({"model_type": "gpt2", "n_embd": 18446744073709551615})"),
      HasSubstr("n_embd: 18446744073709551615"));
  EXPECT_THAT(
      problems(R"({"model_type": "gpt2", "n_embd": 10, "n_head": 3})"),
      HasSubstr("is not divisible"));
  EXPECT_THAT(
      problems(R"({"model_type": "llama", "num_key_value_heads": 5})"),
      HasSubstr("5 does not divide"));
  EXPECT_THAT(
      problems(R"({"model_type": "gpt2", "resid_pdrop": 1.0})"), HasSubstr("resid_pdrop: 1.0"));
  EXPECT_THAT(problems(R"({"model_type": "gpt2", "vocab_size": 50257.5})"), HasSubstr("50257.5"));
  EXPECT_THAT(
      problems(R"({"model_type": "llama", "pad_token_id": 32000})"), HasSubstr("not a row"));
  EXPECT_THAT(
      problems(R"({"model_type": "mistral", "attention_bias": true})"),
      HasSubstr("attention_bias"));
  EXPECT_THAT(
      problems(R"({"model_type": "mistral", "sliding_window": 0})"),
      HasSubstr("sliding_window: 0"));
  EXPECT_THAT(
      problems(R"({"model_type": "gpt2", "add_cross_attention": true})"),
      HasSubstr("cross_attention"));
  EXPECT_THAT(problems(R"({"model_type": "llama", "head_dim": 7})"), HasSubstr("must be even"));
  EXPECT_THAT(
      problems("{\"model_type\": \"gpt2\", \"n_embd\": \"\xff\"}"), HasSubstr("x/config.json"));
}

TEST(ModelConfig, DamagedTextsGiveAnErrorOrAModel) {
  std::vector<std::string> texts;
  for (const std::string& name : preset_names()) {
    texts.push_back(preset(name).json);
  }
  const std::string_view pieces[] = {
      "-1",
      "0",
      "1e999",
      "null",
      "\"x\"",
      "[]",
      "{}",
      "true",
      "99999999999999999999",
      ",",
      "\\u0000",
      "NaN"};
  int64_t models = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto draw = [&](uint64_t part, uint64_t below) {
      return static_cast<size_t>(random_bits(derive_key(1, part), i) % below);
    };
    std::string text = texts[draw(0, texts.size())];
    for (uint64_t edit = 0; edit <= draw(1, 3); ++edit) {
      const size_t at = draw(10 + edit, text.size());
      if (draw(20 + edit, 3) == 0) {
        text[at] = static_cast<char>(draw(30 + edit, 256));
      } else if (draw(40 + edit, 2) == 0) {
        // Replaces a value by one of another type.
        const size_t colon = text.find(": ", at);
        if (colon != std::string::npos) {
          const size_t end = text.find_first_of(",}", colon);
          text.replace(colon + 2, end - colon - 2, pieces[draw(50 + edit, std::size(pieces))]);
        }
      } else {
        text.erase(at, draw(60 + edit, 9));
      }
      if (text.empty()) {
        break;
      }
    }
    try {
      const ModelConfig config = parse_model_config(text, "damaged");
      EXPECT_GT(parameter_count(config), 0) << text;
      EXPECT_GE(config.rotary_dim(config.rope), 0);
      ++models;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(models, 1000);
  EXPECT_LT(models, 19000);
}

TEST(ModelConfig, NeutralValuesAndUnknownKeysPass) {
  const auto config = parse_model_config(
      R"({"model_type": "llama", "quantization_config": null, "logit_scale": 1.0, "pretraining_tp": 4,
          "auto_map": {"AutoModel": "evil.Model"}, "_attn_implementation": "evil", "pruned_heads": {}})",
      "c");
  EXPECT_EQ(config.hidden_size, 4096);
}

TEST(ModelConfig, PaddingRowAsTransformersCountsIt) {
  const auto row = [](const char* family, const char* pad) {
    return parse_model_config(
               std::string(R"({"model_type": ")") + family +
                   R"(", "vocab_size": 10, "pad_token_id": )" + pad + "}",
               "c")
        .embedding_padding_row;
  };
  EXPECT_EQ(row("llama", "3"), 3);
  EXPECT_EQ(row("llama", "-1"), 9);
  EXPECT_EQ(row("llama", "null"), std::nullopt);
  EXPECT_EQ(row("gpt2", "3"), std::nullopt);
}

TEST(ModelConfig, RopeOldAndNewStyle) {
  const auto old_style = parse_model_config(
      R"({"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 2}})",
      "c");
  const auto new_style = parse_model_config(
      R"({"model_type": "llama", "rope_parameters": {"rope_type": "linear", "rope_theta": 500000.0, "factor": 2}})",
      "c");
  EXPECT_EQ(old_style.rope, new_style.rope);
  EXPECT_EQ(old_style.rope.theta, 500000);
  const auto both = parse_model_config(
      R"({"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 3}, "rope_parameters": {}})",
      "c");
  EXPECT_EQ(both.rope.factor, 3);
  const auto outside = parse_model_config(
      R"({"model_type": "llama", "original_max_position_embeddings": 99,
          "rope_scaling": {"rope_type": "yarn", "factor": 3, "original_max_position_embeddings": 7}})",
      "c");
  EXPECT_EQ(outside.rope.original_max_positions, 99);
  // For these families transformers reads the factor only with a scaled type.
  const ModelConfig whole =
      parse_model_config(R"({"model_type": "llama", "partial_rotary_factor": 0.5})", "c");
  EXPECT_EQ(whole.rotary_dim(whole.rope), 128);
  const ModelConfig partial = parse_model_config(
      R"({"model_type": "llama", "partial_rotary_factor": 0.5,
          "rope_scaling": {"rope_type": "linear", "factor": 2}})",
      "c");
  EXPECT_EQ(partial.rotary_dim(partial.rope), 64);
}

TEST(ModelConfig, RopeProblems) {
  const auto rope = [](const std::string& scaling) {
    return problems(R"({"model_type": "llama", "rope_scaling": )" + scaling + "}");
  };
  EXPECT_THAT(rope("3"), HasSubstr("rope_scaling: 3 is not an object"));
  EXPECT_THAT(rope(R"({"rope_type": "yarm", "factor": 2})"), HasSubstr("Did you mean 'yarn'"));
  EXPECT_THAT(rope(R"({"rope_type": "mrope"})"), HasSubstr("\"mrope\" is not supported"));
  EXPECT_THAT(rope(R"({"rope_type": "linear"})"), HasSubstr("rope_scaling.factor: is missing"));
  EXPECT_THAT(rope(R"({"rope_type": "linear", "factor": "2"})"), HasSubstr("factor: \"2\""));
  EXPECT_THAT(rope(R"({"rope_type": "linear", "factor": -2})"), HasSubstr("factor: -2"));
  EXPECT_THAT(
      rope(R"({"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4})"),
      HasSubstr("not larger than low_freq_factor"));
  EXPECT_THAT(
      rope(R"({"rope_type": "longrope", "short_factor": [1], "long_factor": "x"})"),
      AllOf(HasSubstr("short_factor: has 1 numbers"), HasSubstr("long_factor: \"x\"")));
  EXPECT_THAT(
      rope(R"({"full_attention": {"rope_type": "default"}})"),
      HasSubstr("differ from layer to layer"));
}

TEST(ModelConfig, SavingKeepsUnknownKeysAndWritesChanges) {
  ModelConfig config = parse_model_config(
      R"({"model_type": "qwen2", "vocab_size": 100, "my_key": {"a": [1, null]}, "hidden_size": 64,
          "num_attention_heads": 4, "num_key_value_heads": 2, "architectures": ["Qwen2Model"]})",
      "c");
  config = with_vocabulary(config, 104);
  config.eos_token_ids = {7, 8};
  const json saved = json::parse(to_json(config, "bfloat16"));
  EXPECT_EQ(saved["my_key"].dump(), R"({"a":[1,null]})");
  EXPECT_EQ(saved["vocab_size"], 104);
  EXPECT_EQ(saved["dtype"], "bfloat16");
  EXPECT_EQ(saved["torch_dtype"], "bfloat16");
  EXPECT_EQ(saved["architectures"], json({"Qwen2ForCausalLM"}));
  EXPECT_EQ(saved["eos_token_id"], json({7, 8}));
  EXPECT_FALSE(
      saved.contains("rms_norm_eps"));  // keys that were missing and did not change are not written
  const ModelConfig again = parse_model_config(to_json(config, "float32"), "c");
  EXPECT_EQ(again.vocab_size, 104);
  EXPECT_EQ(again.eos_token_ids, config.eos_token_ids);
}

TEST(ModelConfig, ReadsAFileAndNamesIt) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "config.json";
  write_file_atomically(path, R"({"model_type": "gpt2", "n_layer": 3})");
  EXPECT_EQ(read_model_config(path).layers, 3);
  write_file_atomically(path, R"({"model_type": "gpt2", )");
  try {
    read_model_config(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr(path.string()));
  }
}

TEST(ModelConfig, EveryPresetIsBuiltAndSaved) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    EXPECT_GT(parameter_count(config), 1000000) << name;
    EXPECT_EQ(parse_model_config(to_json(config, "float32"), name).layers, config.layers) << name;
  }
  EXPECT_NEAR(static_cast<double>(parameter_count(preset("gpt2-tiny"))), 3.1e6, 2e5);
  try {
    preset("gtp2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.message(), HasSubstr("Did you mean 'gpt2'"));
  }
}

TEST(ModelConfig, PositionLimitSaysWhereItComesFrom) {
  const ModelConfig config = preset("gpt2-tiny");
  check_positions(config, 512);
  try {
    check_positions(config, 513);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(
        error.message(), AllOf(HasSubstr("513"), HasSubstr("512"), HasSubstr("n_positions")));
  }
  check_positions(preset("llama-tiny"), 1000000);
}

TEST(Parameters, NamesShapesAndStartOfGpt2) {
  const ModelConfig config = preset("gpt2");
  const auto parameters = parameters_of(config);
  EXPECT_EQ(parameters.size(), 2 + 12 * 12 + 2);
  EXPECT_EQ(parameters[0].name, "transformer.wte.weight");
  const auto& packed = parameters[4];
  EXPECT_EQ(packed.name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(packed.shape, (std::vector<int64_t>{768, 2304}));
  EXPECT_TRUE(packed.decays);
  EXPECT_NEAR(packed.init.deviation, 0.02, 1e-12);
  const auto& out = parameters[6];
  EXPECT_EQ(out.name, "transformer.h.0.attn.c_proj.weight");
  EXPECT_NEAR(out.init.deviation, 0.02 / std::sqrt(24.0), 1e-12);
  EXPECT_EQ(parameters[3].name, "transformer.h.0.ln_1.bias");
  EXPECT_FALSE(parameters[3].decays);
  EXPECT_EQ(head_name(config), "transformer.wte.weight");
}

TEST(Parameters, HiddenMatricesAreNeitherEmbeddingsNorHeadsNorTables) {
  const auto hidden = [](const ModelConfig& config) {
    std::vector<std::string> names;
    for (const ParameterSpec& parameter : parameters_of(config)) {
      if (parameter.is_hidden_matrix() && parameter.unit <= 1) {
        names.push_back(parameter.name);
      }
      EXPECT_FALSE(parameter.is_hidden_matrix() && parameter.shape.size() != 2) << parameter.name;
      EXPECT_FALSE(parameter.is_hidden_matrix() && parameter.name == head_name(config));
    }
    return names;
  };
  EXPECT_THAT(
      hidden(preset("gpt2")),
      testing::ElementsAre(
          "transformer.h.0.attn.c_attn.weight",
          "transformer.h.0.attn.c_proj.weight",
          "transformer.h.0.mlp.c_fc.weight",
          "transformer.h.0.mlp.c_proj.weight"));
  EXPECT_EQ(hidden(preset("llama-tiny")).size(), 7U);
  // Four of attention and two of the MLP, without the table of relative positions.
  EXPECT_EQ(hidden(preset("t5-small")).size(), 6U);
}

TEST(Parameters, LlamaBiasesPaddingAndUntiedHead) {
  const auto config = parse_model_config(
      R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 20, "head_dim": 6,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1, "attention_bias": true,
          "mlp_bias": true, "pad_token_id": 0})",
      "c");
  const auto parameters = parameters_of(config);
  EXPECT_EQ(parameters.front().init.zero_row, 0);
  EXPECT_EQ(parameters.back().name, "lm_head.weight");
  EXPECT_EQ(parameters.back().init.zero_row, -1);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& parameter : parameters) {
    shapes[parameter.name] = parameter.shape;
  }
  EXPECT_EQ(shapes["model.layers.0.self_attn.q_proj.weight"], (std::vector<int64_t>{24, 8}));
  EXPECT_EQ(shapes["model.layers.0.self_attn.k_proj.bias"], (std::vector<int64_t>{6}));
  EXPECT_EQ(shapes["model.layers.0.self_attn.o_proj.bias"], (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes["model.layers.0.mlp.down_proj.bias"], (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes.size(), 19);
}

}  // namespace model_config_test
}  // namespace lockstep::model
