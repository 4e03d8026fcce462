// Parses config.json.
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/first_rank.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/known_keys.h"
#include "model/model_config.h"
#include "model/parse_rope.h"
#include "model/parse_t5.h"
#include "model/parse_windows.h"
#include "model/quantization.h"

namespace lockstep::model {
namespace {

using nlohmann::json;

// Upper bounds of sizes: far above any model, but small enough that products fit in 64 bits.
constexpr int64_t kMostVocabulary = int64_t{1} << 26;
constexpr int64_t kMostWidth = int64_t{1} << 18;
constexpr int64_t kMostInner = int64_t{1} << 22;
constexpr int64_t kMostLayers = 1 << 12;
constexpr int64_t kMostHeads = 1 << 14;
constexpr int64_t kMostPositions = int64_t{1} << 31;

struct NeutralValue {
  const char* key;
  json neutral;  // neutral value; null: the key must be missing or null
};

/// Keys of related models that change the computation. Any value other than the neutral one is an
/// error because ignoring it would train a different model.
const std::vector<NeutralValue>& mathematical_keys() {
  static const std::vector<NeutralValue> keys = {
      {"attn_logit_softcapping", nullptr},
      {"final_logit_softcapping", nullptr},
      {"logit_softcapping", nullptr},
      {"query_pre_attn_scalar", nullptr},
      {"attention_multiplier", nullptr},
      {"logit_scale", 1},
      {"logits_scaling", 1},
      {"embedding_multiplier", 1},
      {"residual_multiplier", 1},
      {"scale_emb", 1},
      {"scale_depth", nullptr},
      {"use_qk_norm", false},
      {"qk_norm", false},
      {"qk_layernorm", false},
      {"clip_qkv", nullptr},
      {"use_bidirectional_attention", false},
      {"alibi", false},
      {"use_alibi", false},
      {"add_cross_attention", false},
      {"is_encoder_decoder", false},
      {"parallel_attn", false},
      {"rotary_pct", nullptr},
      {"rotary_emb_base", nullptr},
      {"rope_local_base_freq", nullptr},
      {"sliding_window_pattern", nullptr},
      {"attention_types", nullptr},
      {"use_parallel_residual", false},
      {"num_local_experts", nullptr},
      {"num_experts", nullptr},
      {"n_routed_experts", nullptr},
      {"use_mrope", false},
      {"no_rope_layers", nullptr},
      {"attention_chunk_size", nullptr},
      {"rope_interleave", false},
      {"rope_interleaved", false},
      {"pruned_heads", json::object()},
  };
  return keys;
}

constexpr std::array<std::pair<const char*, Activation>, 19> kActivations = {{
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kRelu2},
    {"relu6", Activation::kRelu6},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"tanh", Activation::kTanh},
    {"sigmoid", Activation::kSigmoid},
    {"quick_gelu", Activation::kQuickGelu},
    {"mish", Activation::kMish},
    {"leaky_relu", Activation::kLeakyRelu},
    {"hardswish", Activation::kHardswish},
    {"linear", Activation::kLinear},
}};

const FamilyKeys* parse_family(ConfigReader& reader) {
  std::vector<std::string> names;
  for (const FamilyKeys& family : all_families()) {
    names.emplace_back(family.name);
  }
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  if (!reader.has("model_type")) {
    reader.problem("model_type", "is missing; the supported families are " + known);
    return nullptr;
  }
  const std::string name = reader.text("model_type", "gpt2");
  for (const FamilyKeys& family : all_families()) {
    if (family.name == name) {
      return &family;
    }
  }
  reader.problem(
      "model_type",
      fmt::format(
          "\"{}\" is not supported; use one of {}.{}", name, known, did_you_mean(name, names)));
  return nullptr;
}

Activation activation_named(ConfigReader& reader, const char* key, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, activation] : kActivations) {
    if (name == known) {
      return activation;
    }
    names.emplace_back(known);
  }
  reader.problem(
      key,
      fmt::format(
          "\"{}\" is not supported; use one of {}.{}",
          name,
          fmt::join(names, ", "),
          did_you_mean(name, names)));
  return Activation::kLinear;
}

/// Returns the key in the file: the family's own key, or the common key that transformers also
/// accepts.
const char* given(const ConfigReader& reader, const char* own, const char* common) {
  return !reader.has(own) && reader.has(common) ? common : own;
}

void parse_sizes(ConfigReader& reader, const FamilyKeys& keys, ModelConfig& config) {
  config.vocab_size = reader.integer(keys.vocab_size, keys.default_vocab_size, 1, kMostVocabulary);
  config.hidden_size = reader.integer(
      given(reader, keys.hidden_size, "hidden_size"), keys.default_hidden_size, 1, kMostWidth);
  config.layers = reader.integer(
      given(reader, keys.layers, "num_hidden_layers"), keys.default_layers, 1, kMostLayers);
  if (keys.family == Family::kT5) {
    config.encoder_layers = config.layers;
    config.layers += reader.optional_integer("num_decoder_layers", 1, kMostLayers)
                         .value_or(config.encoder_layers);
  }
  config.heads = reader.integer(
      given(reader, keys.heads, "num_attention_heads"), keys.default_heads, 1, kMostHeads);
  config.max_positions = reader.integer(
      given(reader, keys.max_positions, "max_position_embeddings"),
      keys.default_max_positions,
      1,
      kMostPositions);
  config.kv_heads = config.heads;
  const char* kv = keys.kv_heads;
  if (keys.groups_queries) {
    // A missing key selects the family's default; null selects the number of heads.
    const bool is_default = !reader.object().contains(kv) && keys.default_kv_heads > 0;
    config.kv_heads = is_default
                          ? keys.default_kv_heads
                          : reader.optional_integer(kv, 1, kMostHeads).value_or(config.heads);
    if (config.heads % config.kv_heads != 0) {
      reader.problem(
          kv,
          fmt::format("{} does not divide the {} attention heads", config.kv_heads, config.heads));
    }
  }
  config.intermediate_size =
      reader.optional_integer(keys.intermediate_size, 1, kMostInner)
          .value_or(
              keys.default_intermediate_size > 0 ? keys.default_intermediate_size
                                                 : 4 * config.hidden_size);
  if (keys.family == Family::kT5) {
    config.head_dim =
        reader.integer(given(reader, "d_kv", "head_dim"), keys.default_head_dim, 1, kMostWidth);
    return;
  }
  int64_t head_dim = keys.default_head_dim;  // 0: derived from other sizes
  if (keys.groups_queries) {
    head_dim = reader.optional_integer(keys.head_dim, 1, kMostWidth).value_or(head_dim);
  }
  config.head_dim =
      head_dim > 0 ? head_dim : std::max<int64_t>(config.hidden_size / config.heads, 1);
  if (head_dim == 0 && config.hidden_size % config.heads != 0) {
    reader.problem(
        keys.hidden_size,
        fmt::format(
            "{} is not divisible by {} = {}", config.hidden_size, keys.heads, config.heads));
  }
}

void parse_options(ConfigReader& reader, const FamilyKeys& keys, ModelConfig& config) {
  config.gated_mlp = keys.gates_mlp;
  if (keys.family == Family::kT5) {
    const T5Mlp mlp = parse_t5_mlp(reader);
    config.gated_mlp = mlp.gated;
    config.activation = activation_named(reader, keys.activation, mlp.activation);
  } else {
    config.activation = activation_named(
        reader, keys.activation, reader.text(keys.activation, keys.default_activation));
  }
  config.norm_eps = reader.number(keys.norm_eps, keys.default_norm_eps, 0, 1);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", keys.default_tie);
  config.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  constexpr double kMostDropout = 0.999;
  config.attention_dropout =
      reader.number(keys.attention_dropout, keys.default_dropout, 0, kMostDropout);
  const auto dropout = [&](const char* key) {
    return key == nullptr ? 0 : reader.number(key, keys.default_dropout, 0, kMostDropout);
  };
  config.embedding_dropout = dropout(keys.embedding_dropout);
  config.residual_dropout = dropout(keys.residual_dropout);
  if (keys.parse_options != nullptr) {
    keys.parse_options(reader, config);
    return;
  }
  switch (keys.family) {
    case Family::kGpt2:
      config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
      config.scale_attention = reader.boolean("scale_attn_weights", true);
      config.scale_attention_by_inverse_layer =
          reader.boolean("scale_attn_by_inverse_layer_idx", false);
      config.upcast_attention = reader.boolean("reorder_and_upcast_attn", false);
      break;
    case Family::kLlama:
      config.qkv_bias = config.attention_out_bias = reader.boolean("attention_bias", false);
      config.mlp_bias = reader.boolean("mlp_bias", false);
      break;
    case Family::kMistral:
    case Family::kQwen2:
      config.qkv_bias = keys.family == Family::kQwen2;
      for (const char* key : {"attention_bias", "mlp_bias"}) {
        // Qwen2 configs may set attention_bias for biases that the family always has.
        if (reader.boolean(key, false) && !(config.qkv_bias && key[0] == 'a')) {
          reader.problem(key, fmt::format("true is not supported by {}", keys.name));
        }
      }
      break;
    case Family::kQwen3:
      config.head_norms = true;
      config.qkv_bias = config.attention_out_bias = reader.boolean("attention_bias", false);
      if (reader.boolean("mlp_bias", false)) {
        reader.problem("mlp_bias", "true is not supported by qwen3");
      }
      break;
    case Family::kT5:
      parse_t5_options(reader, config);
      break;
    default:
      break;
  }
}

void parse_windows(ConfigReader& reader, ModelConfig& config) {
  const bool is_qwen = config.family == Family::kQwen2 || config.family == Family::kQwen3 ||
                       config.family == Family::kQwen3Moe;
  config.sliding_windows.assign(static_cast<size_t>(config.layers), 0);
  const auto types = parse_layer_types(reader, config);
  int64_t window = 0, first = 0;
  if (config.family == Family::kMistral || is_qwen) {
    window = reader.object().contains("sliding_window")
                 ? reader.optional_integer("sliding_window", 1, kMostPositions).value_or(0)
                 : 4096;
  }
  if (config.family == Family::kMixtral) {
    window = reader.optional_integer("sliding_window", 1, kMostPositions).value_or(0);
  }
  if (is_qwen) {
    window = reader.boolean("use_sliding_window", false) ? window : 0;
    // Qwen3 MoE configs contain the key, but either all layers have windows or none.
    first = config.family == Family::kQwen3Moe
                ? 0
                : reader.integer("max_window_layers", 28, 0, kMostPositions);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const bool slides = window > 0 && layer >= first;
    config.sliding_windows[i] = slides ? window : 0;
    if (types.empty() || (types[i] == "sliding_attention") == slides) {
      continue;
    }
    if (is_qwen && window > 0) {
      config.sliding_windows[i] = slides ? 0 : window;
      continue;
    }
    reader.problem(
        "layer_types",
        fmt::format(
            "layer {} is \"{}\", which {}",
            layer,
            types[i],
            is_qwen ? "requires use_sliding_window and sliding_window"
                    : fmt::format("{} does not have", family_name(config.family))));
    return;
  }
}

void parse_token_ids(ConfigReader& reader, const FamilyKeys& keys, ModelConfig& config) {
  const auto id = [&](const char* key, int64_t fallback) -> std::optional<int64_t> {
    const int64_t value =
        reader.object().contains(key)
            ? reader.optional_integer(key, -kMostVocabulary, kMostPositions).value_or(-1)
            : fallback;
    return value < 0 ? std::nullopt : std::optional(value);
  };
  config.bos_token_id = id("bos_token_id", keys.default_bos);
  config.eos_token_ids = reader.integers("eos_token_id", -kMostVocabulary, kMostPositions, 1024);
  if (!reader.object().contains("eos_token_id") && keys.default_eos >= 0) {
    config.eos_token_ids = {keys.default_eos};
  }
  std::erase_if(config.eos_token_ids, [](int64_t token) { return token < 0; });
  if (config.eos_token_ids.empty() && !reader.has("eos_token_id")) {
    config.eos_token_ids = keys.further_eos;
  }
  std::optional<int64_t> pad =
      reader.optional_integer("pad_token_id", -kMostVocabulary, kMostPositions);
  if (!reader.object().contains("pad_token_id") && keys.default_pad >= 0) {
    pad = keys.default_pad;
  }
  if (pad && *pad >= 0) {
    config.pad_token_id = pad;
  }
  if (keys.family == Family::kT5) {
    parse_t5_tokens(reader, config);
    return;
  }
  if (!pad || !keys.pads_embedding) {
    return;
  }
  // transformers creates the embedding with padding_idx = pad_token_id, and torch counts negative
  // indices from the end.
  const int64_t row = *pad < 0 ? *pad + config.vocab_size : *pad;
  if (row >= 0 && row < config.vocab_size) {
    config.embedding_padding_row = row;
  } else {
    reader.problem(
        "pad_token_id",
        fmt::format("{} is not a row of an embedding with {} rows", *pad, config.vocab_size));
  }
}

void check_mathematical_keys(ConfigReader& reader, const FamilyKeys& keys) {
  for (const auto& [key, neutral] : mathematical_keys()) {
    const std::string_view name = key;
    const bool is_read = std::any_of(
        keys.reads.begin(), keys.reads.end(), [&](const char* read) { return name == read; });
    if (is_read) {
      continue;  // parsed by the family's own parser
    }
    if (reader.has(key) && reader.object().at(key) != neutral) {
      reader.problem(
          key,
          fmt::format(
              "{} changes what the model computes and is not supported{}",
              shown(reader.object().at(key)),
              neutral.is_null() ? "" : fmt::format(" (only {} is)", neutral.dump())));
    }
  }
}

void throw_problems(std::string_view source, std::vector<std::string> problems) {
  constexpr size_t kMostShown = 20;
  const size_t count = problems.size();
  if (count > kMostShown) {
    problems.resize(kMostShown);
    problems.push_back(fmt::format("and {} more", count - kMostShown));
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{} does not describe a valid model:\n  {}", source, fmt::join(problems, "\n  ")));
}

/// Parses a config.json. Adds keys to `unused` that have no effect for an unknown reason.
ModelConfig parse(
    std::string_view text, std::string_view source, std::vector<std::string>& unused) {
  const json object = parse_json(text, source);
  if (!object.is_object()) {
    throw Error(
        ErrorKind::kData, fmt::format("{} contains {}, not an object", source, shown(object)));
  }
  std::vector<std::string> problems;
  ConfigReader reader(object, "", problems);
  ModelConfig config;
  if (const FamilyKeys* keys = parse_family(reader)) {
    config.family = keys->family;
    parse_sizes(reader, *keys, config);
    parse_options(reader, *keys, config);
    (keys->parse_windows != nullptr ? keys->parse_windows : parse_windows)(reader, config);
    parse_token_ids(reader, *keys, config);
    if (keys->parse_rotary != nullptr) {
      keys->parse_rotary(reader, config);
    } else if (keys->rotates) {
      config.rope = parse_rope(reader, config);
    }
    check_mathematical_keys(reader, *keys);
    config.quantization = parse_quantization(reader);
    config.head = parse_head(reader);
  }
  if (!problems.empty()) {
    throw_problems(source, std::move(problems));
  }
  config.json = std::string(text);
  unused = reader.unread();
  std::erase_if(
      unused, [](const std::string& key) { return contains(harmless_config_keys(), key); });
  return config;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view source) {
  std::vector<std::string> unused;
  return parse(text, source, unused);
}

std::vector<std::string> unused_config_keys(std::string_view text, std::string_view source) {
  std::vector<std::string> unused;
  parse(text, source, unused);
  return unused;
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  std::vector<std::string> unused;
  ModelConfig config =
      parse(read_file(path, ErrorKind::kData, kLongestJson), path.string(), unused);
  if (!unused.empty()) {
    warn_on_first_rank(fmt::format(
        "{}: keys that {} does not use: {}",
        path.string(),
        family_name(config.family),
        fmt::join(unused, ", ")));
  }
  return config;
}

}  // namespace lockstep::model
