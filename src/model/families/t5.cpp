// T5 (Raffel et al., "Exploring the Limits of Transfer Learning", 2020). Each matrix has its own
// initialization width. Attention scores are not scaled; the initialization of the queries
// compensates for that.
#include <cmath>
#include <string_view>

#include "base/format.h"
#include "model/encoder_head.h"
#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

double inverse_root(int64_t n) {
  return 1 / std::sqrt(static_cast<double>(n));
}

constexpr std::string_view kBodyOfClassifier = "transformer.";

/// Adds the classifier's parameter names as aliases to the layers added so far, so that checkpoints
/// of both models can be read.
void name_body(LayerList& list) {
  const bool classifies = list.config().head.classifies();
  const auto within = [](std::string_view name) {
    return fmt::format("{}{}", kBodyOfClassifier, name);
  };
  for (LayerSpec& layer : list.layers()) {
    for (ParameterSpec& parameter : layer.parameters) {
      const std::string bare = parameter.name;
      for (const std::string& alias : std::vector<std::string>(parameter.aliases)) {
        parameter.aliases.push_back(within(alias));
      }
      parameter.name = classifies ? within(bare) : bare;
      parameter.aliases.push_back(classifies ? bare : within(bare));
    }
    layer.prefix = classifies ? within(layer.prefix) : layer.prefix;
  }
}

/// Returns the name prefix of a block in its stack.
std::string place_of(const ModelConfig& config, int64_t block) {
  const bool encodes = block < config.encoder_layers;
  return fmt::format(
      "{}.block.{}.",
      encodes ? "encoder" : "decoder",
      encodes ? block : block - config.encoder_layers);
}

void t5_embedding(LayerList& list) {
  const ModelConfig& config = list.config();
  LayerSpec& tokens = list.tokens("shared");
  for (const char* stack : {"encoder", "decoder"}) {
    tokens.parameters.front().aliases.push_back(fmt::format("{}.embed_tokens.weight", stack));
  }
  // The relative position tables are in the embedding unit, which passes them to the blocks.
  const auto add_table = [&](const char* role, int64_t first_block) {
    LayerSpec& table = list.table(
        LayerKind::kRelativePositions,
        role,
        place_of(config, first_block) + "layer.0.SelfAttention.relative_attention_bias",
        {Dim::kDistances, config.relative_positions.buckets},
        {Dim::kHeads, config.heads});
    set_deviation(table, inverse_root(config.hidden_size));
    table.parameters.front().decays = false;
  };
  add_table("source_positions", 0);
  add_table("target_positions", config.encoder_layers);
  name_body(list);
}

void t5_attention(LayerList& list, const std::string& sublayer, bool crosses) {
  const int64_t width = list.config().hidden_size, heads = list.queries().size;
  const auto add =
      [&](const char* role, const char* name, Extent out, Extent in, int64_t inputs) -> LayerSpec& {
    const std::string module = crosses ? "EncDecAttention." : "SelfAttention.";
    LayerSpec& layer = list.linear(
        (crosses ? "cross_" : "") + std::string(role),
        sublayer + module + name,
        out,
        in,
        LayerList::Bias::kNone);
    set_deviation(layer, inverse_root(inputs));
    return layer;
  };
  list.rms_norm(crosses ? "cross_norm" : "attention_norm", sublayer + "layer_norm", list.hidden());
  add("query", "q", list.queries(), list.hidden(), width * list.config().head_dim);
  add("key", "k", list.key_values(), list.hidden(), width).reads_source = crosses;
  add("value", "v", list.key_values(), list.hidden(), width).reads_source = crosses;
  add("attention_out", "o", list.hidden(), list.queries(), heads);
}

void t5_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const std::string place = place_of(config, block);
  int64_t sublayers = 0;
  const auto next = [&] { return fmt::format("{}layer.{}.", place, sublayers++); };
  t5_attention(list, next(), false);
  if (block >= config.encoder_layers) {
    t5_attention(list, next(), true);
  }
  const std::string sublayer = next(), mlp = sublayer + "DenseReluDense.";
  const auto add = [&](const char* role, const char* name, Extent out, Extent in) {
    set_deviation(
        list.linear(role, mlp + name, out, in, LayerList::Bias::kNone), inverse_root(in.size));
  };
  list.rms_norm("mlp_norm", sublayer + "layer_norm", list.hidden());
  if (config.gated_mlp) {
    add("mlp_gate", "wi_0", list.width(), list.hidden());
  }
  add("mlp_up", config.gated_mlp ? "wi_1" : "wi", list.width(), list.hidden());
  add("mlp_down", "wo", list.hidden(), list.width());
  if (block + 1 == config.encoder_layers) {
    list.rms_norm("encoder_norm", "encoder.final_layer_norm", list.hidden());
  }
  name_body(list);
}

void t5_head(LayerList& list) {
  list.rms_norm("final_norm", "decoder.final_layer_norm", list.hidden());
  name_body(list);
  if (list.config().head.classifies()) {
    const std::string head = std::string(kT5ClassifierHead) + ".", product = head + "out_proj";
    LayerSpec& dense = list.linear(
        "head_dense", head + "dense", list.hidden(), list.hidden(), LayerList::Bias::kZeros);
    const double deviation = inverse_root(list.config().hidden_size);
    set_deviation(dense, deviation);
    set_deviation(*list.head("", product), deviation);
    list.head_bias(product);
    return;
  }
  if (LayerSpec* const head = list.head("lm_head")) {
    // Newer checkpoints omit an unscaled head that equals the embedding.
    head->parameters.front().aliases.push_back(embedding_name(list.config()));
  }
}

}  // namespace

FamilyKeys t5_family() {
  return {
      .family = Family::kT5,
      .name = "t5",
      .architecture = "T5ForConditionalGeneration",
      .hidden_size = "d_model",
      .layers = "num_layers",
      .heads = "num_heads",
      .max_positions = "n_positions",
      .intermediate_size = "d_ff",
      .activation = "feed_forward_proj",
      .norm_eps = "layer_norm_epsilon",
      .attention_dropout = "dropout_rate",
      .default_vocab_size = 32128,
      .default_hidden_size = 512,
      .default_layers = 6,
      .default_heads = 8,
      .default_head_dim = 64,
      .default_intermediate_size = 2048,
      .default_max_positions = 512,
      .default_dropout = 0.1,
      .default_eos = 1,
      .default_tie = true,
      .lora_targets = {"q", "v"},
      .describe_embedding = t5_embedding,
      .describe_block = t5_block,
      .describe_head = t5_head,
      .groups_queries = false,
      .rotates = false,
      .reads = {"is_encoder_decoder"},
  };
}

}  // namespace lockstep::model
