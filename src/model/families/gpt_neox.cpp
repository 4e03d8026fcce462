// GPT-NeoX (Black et al., 2022), including Pythia. Attention and MLP read the same hidden states,
// and both outputs are added to them. Query, key and value are packed per head.
#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"
#include "model/parse_rope.h"

namespace lockstep::model {
namespace {

void gpt_neox_embedding(LayerList& list) {
  LayerSpec& tokens = list.tokens("gpt_neox.embed_in", "embed_out");
  if (list.config().ties_head()) {
    tokens.parameters.front().aliases.emplace_back("lm_head.weight");
  }
}

void gpt_neox_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const auto place = [&](const char* module) {
    return fmt::format("gpt_neox.layers.{}.{}", block, module);
  };
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in, bool bias) {
    list.linear(role, place(module), out, in, LayerList::Bias{bias});
  };
  const Extent triples{Dim::kHeadTriples, 3 * list.queries().size};
  list.layer_norm("attention_norm", place("input_layernorm"), list.hidden());
  linear("query_key_value", "attention.query_key_value", triples, list.hidden(), config.qkv_bias);
  linear(
      "attention_out", "attention.dense", list.hidden(), list.queries(), config.attention_out_bias);
  list.layer_norm("mlp_norm", place("post_attention_layernorm"), list.hidden());
  linear("mlp_up", "mlp.dense_h_to_4h", list.width(), list.hidden(), true);
  linear("mlp_down", "mlp.dense_4h_to_h", list.hidden(), list.width(), true);
}

void gpt_neox_head(LayerList& list) {
  list.layer_norm("final_norm", "gpt_neox.final_layer_norm", list.hidden());
  if (LayerSpec* const head = list.head("embed_out")) {
    // Parameter name in newer versions of transformers.
    head->parameters.front().aliases.emplace_back("lm_head.weight");
  }
}

void parse_gpt_neox(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.attention_out_bias = reader.boolean("attention_bias", true);
  config.mlp_bias = true;
  config.parallel_residual = reader.boolean("use_parallel_residual", true);
}

void parse_gpt_neox_rotary(ConfigReader& reader, ModelConfig& config) {
  config.rope = parse_rope(
      reader,
      config,
      {.partial_rotary_factor = 0.25, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"});
}

}  // namespace

FamilyKeys gpt_neox_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kGptNeoX;
  keys.name = "gpt_neox";
  keys.architecture = "GPTNeoXForCausalLM";
  keys.norm_eps = "layer_norm_eps";
  keys.default_vocab_size = 50432;
  keys.default_hidden_size = 6144;
  keys.default_layers = 44;
  keys.default_heads = 64;
  keys.default_intermediate_size = 24576;
  keys.default_norm_eps = 1e-5;
  keys.default_bos = 0;
  keys.lora_targets = {"query_key_value"};
  keys.describe_embedding = gpt_neox_embedding;
  keys.describe_block = gpt_neox_block;
  keys.describe_head = gpt_neox_head;
  keys.embedding_dropout = "hidden_dropout";
  keys.residual_dropout = "hidden_dropout";
  keys.default_activation = "gelu";
  keys.gates_mlp = false;
  keys.groups_queries = false;
  keys.pads_embedding = false;
  keys.reads = {"use_parallel_residual", "rotary_pct", "rotary_emb_base"};
  keys.parse_options = parse_gpt_neox;
  keys.parse_rotary = parse_gpt_neox_rotary;
  return keys;
}

}  // namespace lockstep::model
