// GPT-Neo (Black et al., 2021): GPT-2 blocks with [out, in] weights, unscaled attention scores, and
// a sliding window in every other layer.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

void gpt_neo_embedding(LayerList& list) {
  list.tokens("transformer.wte");
  list.table(
      LayerKind::kPositionEmbedding,
      "positions",
      "transformer.wpe",
      {Dim::kPositions, list.config().max_positions},
      list.hidden());
}

void gpt_neo_block(LayerList& list, int64_t block) {
  const auto place = [&](const char* module) {
    return fmt::format("transformer.h.{}.{}", block, module);
  };
  const auto linear =
      [&](const char* role, const char* module, Extent out, Extent in, LayerList::Bias bias) {
        list.linear(role, place(module), out, in, bias);
      };
  constexpr auto kNone = LayerList::Bias::kNone, kZeros = LayerList::Bias::kZeros;
  list.layer_norm("attention_norm", place("ln_1"), list.hidden());
  linear("query", "attn.attention.q_proj", list.queries(), list.hidden(), kNone);
  linear("key", "attn.attention.k_proj", list.key_values(), list.hidden(), kNone);
  linear("value", "attn.attention.v_proj", list.key_values(), list.hidden(), kNone);
  linear("attention_out", "attn.attention.out_proj", list.hidden(), list.queries(), kZeros);
  list.layer_norm("mlp_norm", place("ln_2"), list.hidden());
  linear("mlp_up", "mlp.c_fc", list.width(), list.hidden(), kZeros);
  linear("mlp_down", "mlp.c_proj", list.hidden(), list.width(), kZeros);
}

void gpt_neo_head(LayerList& list) {
  list.layer_norm("final_norm", "transformer.ln_f", list.hidden());
  list.head("lm_head");
}

void parse_gpt_neo(ConfigReader& /*reader*/, ModelConfig& config) {
  config.attention_out_bias = config.mlp_bias = true;
  config.scale_attention = false;
  config.upcast_attention = true;
}

/// Parses attention_types, for example [[["global", "local"], 12]]: each list of kinds is repeated
/// the given number of times. Returns true for each local layer. If the value is invalid, records a
/// problem and returns an empty vector.
std::vector<bool> parse_local_layers(ConfigReader& reader, int64_t layers) {
  using nlohmann::json;
  static const json fallback = {{{"global", "local"}, 12}};
  const char* key = "attention_types";
  const json& types = reader.has(key) ? reader.object().at(key) : fallback;
  const auto refuse = [&](std::string_view what) {
    reader.problem(key, fmt::format("{} {}", shown(types), what));
    return std::vector<bool>{};
  };
  constexpr const char* kForm =
      "is not a list of pairs of a list of \"global\" and \"local\" and a number";
  std::vector<bool> local;
  for (const json& item : types.is_array() ? types : json::array({nullptr})) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_array() ||
        !item[1].is_number_integer() || item[1].get<int64_t>() < 0) {
      return refuse(kForm);
    }
    // Limited because the repeat count may be arbitrarily large.
    const int64_t times = std::min(item[1].get<int64_t>(), layers + 1);
    for (int64_t i = 0; i < times && static_cast<int64_t>(local.size()) <= layers; ++i) {
      for (const json& kind : item[0]) {
        if (kind != "global" && kind != "local") {
          return refuse(kForm);
        }
        local.push_back(kind == "local");
      }
    }
  }
  if (static_cast<int64_t>(local.size()) != layers) {
    return refuse(fmt::format("does not describe {} layers", layers));
  }
  return local;
}

/// Checks attention_layers, a list of kinds, against attention_types. transformers uses it if
/// present.
void check_listed_layers(ConfigReader& reader, const std::vector<bool>& local) {
  const char* key = "attention_layers";
  const nlohmann::json listed = reader.has(key) ? reader.object().at(key) : nlohmann::json();
  nlohmann::json made = nlohmann::json::array();
  for (const bool is_local : local) {
    made.push_back(is_local ? "local" : "global");
  }
  if (!listed.is_null() && listed != made) {
    reader.problem(key, fmt::format("{} does not match attention_types", shown(listed)));
  }
}

void parse_gpt_neo_windows(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = reader.integer("window_size", 256, 1, int64_t{1} << 31);
  const std::vector<bool> local = parse_local_layers(reader, config.layers);
  if (!local.empty()) {
    check_listed_layers(reader, local);
  }
  config.sliding_windows.assign(static_cast<size_t>(config.layers), 0);
  for (size_t layer = 0; layer < local.size(); ++layer) {
    config.sliding_windows[layer] = local[layer] ? window : 0;
  }
}

}  // namespace

FamilyKeys gpt_neo_family() {
  FamilyKeys keys = gpt2_family();
  keys.family = Family::kGptNeo;
  keys.name = "gpt_neo";
  keys.architecture = "GPTNeoForCausalLM";
  keys.hidden_size = "hidden_size";
  keys.layers = "num_layers";
  keys.heads = "num_heads";
  keys.max_positions = "max_position_embeddings";
  keys.intermediate_size = "intermediate_size";
  keys.attention_dropout = "attention_dropout";
  keys.default_hidden_size = 2048;
  keys.default_layers = 24;
  keys.default_heads = 16;
  keys.default_max_positions = 2048;
  keys.default_dropout = 0;
  keys.lora_targets = {"q_proj", "v_proj"};
  keys.describe_embedding = gpt_neo_embedding;
  keys.describe_block = gpt_neo_block;
  keys.describe_head = gpt_neo_head;
  keys.embedding_dropout = "embed_dropout";
  keys.residual_dropout = "resid_dropout";
  keys.reads = {"attention_types"};
  keys.parse_options = parse_gpt_neo;
  keys.parse_windows = parse_gpt_neo_windows;
  return keys;
}

}  // namespace lockstep::model
