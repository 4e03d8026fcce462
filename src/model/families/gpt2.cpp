// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019). Its linear
// weights are [in, out].
#include <cmath>

#include "base/format.h"
#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

void gpt2_embedding(LayerList& list) {
  list.tokens("transformer.wte");
  list.table(
      LayerKind::kPositionEmbedding,
      "positions",
      "transformer.wpe",
      {Dim::kPositions, list.config().max_positions},
      list.hidden());
}

void gpt2_block(LayerList& list, int64_t block) {
  const auto place = [&](const char* module) {
    return fmt::format("transformer.h.{}.{}", block, module);
  };
  const auto linear =
      [&](const char* role, const char* module, Extent in, Extent out) -> LayerSpec& {
    return list.linear_in_first(role, place(module), in, out, LayerList::Bias::kZeros);
  };
  const Extent packed{Dim::kPackedHeads, 3 * list.queries().size};
  // Section 2.3: initialization of residual projections is scaled by depth.
  const double residual =
      list.config().initializer_range / std::sqrt(2.0 * static_cast<double>(list.config().layers));
  list.layer_norm("attention_norm", place("ln_1"), list.hidden());
  linear("query_key_value", "attn.c_attn", list.hidden(), packed);
  set_deviation(linear("attention_out", "attn.c_proj", list.queries(), list.hidden()), residual);
  list.layer_norm("mlp_norm", place("ln_2"), list.hidden());
  linear("mlp_up", "mlp.c_fc", list.hidden(), list.width());
  set_deviation(linear("mlp_down", "mlp.c_proj", list.width(), list.hidden()), residual);
}

void gpt2_head(LayerList& list) {
  list.layer_norm("final_norm", "transformer.ln_f", list.hidden());
  list.head("lm_head");
}

}  // namespace

FamilyKeys gpt2_family() {
  return {
      .family = Family::kGpt2,
      .name = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .hidden_size = "n_embd",
      .layers = "n_layer",
      .heads = "n_head",
      .max_positions = "n_positions",
      .intermediate_size = "n_inner",
      .activation = "activation_function",
      .norm_eps = "layer_norm_epsilon",
      .attention_dropout = "attn_pdrop",
      .default_vocab_size = 50257,
      .default_hidden_size = 768,
      .default_layers = 12,
      .default_heads = 12,
      .default_max_positions = 1024,
      .default_norm_eps = 1e-5,
      .default_dropout = 0.1,
      .default_bos = 50256,
      .default_eos = 50256,
      .default_tie = true,
      .lora_targets = {"c_attn"},
      .describe_embedding = gpt2_embedding,
      .describe_block = gpt2_block,
      .describe_head = gpt2_head,
      .embedding_dropout = "embd_pdrop",
      .residual_dropout = "resid_pdrop",
      .default_activation = "gelu_new",
      .gates_mlp = false,
      .groups_queries = false,
      .rotates = false,
      .pads_embedding = false,
  };
}

}  // namespace lockstep::model
