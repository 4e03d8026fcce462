#include "model/parameters.h"

#include <cmath>

#include "base/format.h"

namespace lockstep::model {
namespace {

/// Collects parameters; each function adds one layer's.
class Collector {
 public:
  explicit Collector(double deviation) : deviation_(deviation) {}

  void matrix(const std::string& prefix, std::vector<int64_t> shape, double factor = 1) {
    add(prefix + ".weight", std::move(shape), Initialization::Kind::kNormal, deviation_ * factor);
  }
  void bias(const std::string& prefix, int64_t size) {
    add(prefix + ".bias", {size}, Initialization::Kind::kZeros, 0);
  }
  void norm(const std::string& prefix, int64_t size, bool has_bias) {
    add(prefix + ".weight", {size}, Initialization::Kind::kOnes, 0);
    if (has_bias) {
      bias(prefix, size);
    }
  }
  /// What comes next is the next unit's.
  void next_unit() { ++unit_; }
  std::vector<ParameterSpec> take() { return std::move(parameters_); }
  ParameterSpec& last() { return parameters_.back(); }

 private:
  void add(
      std::string name, std::vector<int64_t> shape, Initialization::Kind kind, double deviation) {
    const bool is_matrix = shape.size() > 1;
    parameters_.push_back(
        {std::move(name), std::move(shape), {kind, deviation, -1}, is_matrix, unit_});
  }
  double deviation_;
  int64_t unit_ = 0;
  std::vector<ParameterSpec> parameters_;
};

void add_gpt2_layer(Collector& collector, const ModelConfig& config, const std::string& prefix) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size;
  // The paper (Radford et al., 2019, section 2.3) scales residual projections by the depth.
  const double residual = 1 / std::sqrt(2.0 * static_cast<double>(config.layers));
  collector.norm(prefix + "ln_1", width, true);
  collector.matrix(prefix + "attn.c_attn", {width, 3 * width});
  collector.bias(prefix + "attn.c_attn", 3 * width);
  collector.matrix(prefix + "attn.c_proj", {width, width}, residual);
  collector.bias(prefix + "attn.c_proj", width);
  collector.norm(prefix + "ln_2", width, true);
  collector.matrix(prefix + "mlp.c_fc", {width, inner});
  collector.bias(prefix + "mlp.c_fc", inner);
  collector.matrix(prefix + "mlp.c_proj", {inner, width}, residual);
  collector.bias(prefix + "mlp.c_proj", width);
}

void add_llama_layer(Collector& collector, const ModelConfig& config, const std::string& prefix) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool has_bias) {
    collector.matrix(prefix + name, {out, in});
    if (has_bias) {
      collector.bias(prefix + name, out);
    }
  };
  const int64_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
  collector.norm(prefix + "input_layernorm", width, false);
  linear("self_attn.q_proj", queries, width, config.qkv_bias);
  linear("self_attn.k_proj", keys, width, config.qkv_bias);
  linear("self_attn.v_proj", keys, width, config.qkv_bias);
  if (config.head_norms) {
    collector.norm(prefix + "self_attn.q_norm", config.head_dim, false);
    collector.norm(prefix + "self_attn.k_norm", config.head_dim, false);
  }
  linear("self_attn.o_proj", width, queries, config.attention_out_bias);
  collector.norm(prefix + "post_attention_layernorm", width, false);
  linear("mlp.gate_proj", inner, width, config.mlp_bias);
  linear("mlp.up_proj", inner, width, config.mlp_bias);
  linear("mlp.down_proj", width, inner, config.mlp_bias);
}

/// Each matrix of T5 starts by its own width (the scaling that attention lacks is in the queries').
void add_t5_layer(Collector& collector, const ModelConfig& config, int64_t layer) {
  const std::string prefix = layer_prefix(config, layer);
  const int64_t width = config.hidden_size, inner = config.intermediate_size;
  const int64_t heads = config.heads * config.head_dim;
  const auto root = [](int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); };
  int64_t part = 0;
  const auto add_attention = [&](const char* module) {
    const std::string sublayer = fmt::format("{}layer.{}.", prefix, part++);
    collector.norm(sublayer + "layer_norm", width, false);
    collector.matrix(sublayer + module + ".q", {heads, width}, root(width * config.head_dim));
    collector.matrix(sublayer + module + ".k", {heads, width}, root(width));
    collector.matrix(sublayer + module + ".v", {heads, width}, root(width));
    collector.matrix(sublayer + module + ".o", {width, heads}, root(heads));
  };
  add_attention("SelfAttention");
  if (layer >= config.encoder_layers) {
    add_attention("EncDecAttention");
  }
  const std::string sublayer = fmt::format("{}layer.{}.", prefix, part);
  const std::string mlp = sublayer + "DenseReluDense.";
  collector.norm(sublayer + "layer_norm", width, false);
  if (config.gated_mlp) {
    collector.matrix(mlp + "wi_0", {inner, width}, root(width));
  }
  collector.matrix(mlp + (config.gated_mlp ? "wi_1" : "wi"), {inner, width}, root(width));
  collector.matrix(mlp + "wo", {width, inner}, root(inner));
  if (layer + 1 == config.encoder_layers) {
    collector.norm("encoder.final_layer_norm", width, false);
  }
}

std::vector<ParameterSpec> t5_parameters(const ModelConfig& config) {
  Collector collector(config.initializer_range);
  collector.matrix("shared", {config.vocab_size, config.hidden_size});
  // The tables of relative positions are carried along from the embedding to the blocks.
  for (const int64_t layer : {int64_t{0}, config.encoder_layers}) {
    collector.matrix(
        relative_positions_prefix(config, layer),
        {config.relative_positions.buckets, config.heads},
        1 / std::sqrt(static_cast<double>(config.hidden_size)));
    collector.last().decays = false;
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    collector.next_unit();
    add_t5_layer(collector, config, layer);
  }
  collector.next_unit();
  collector.norm("decoder.final_layer_norm", config.hidden_size, false);
  if (!config.tie_word_embeddings) {
    collector.matrix("lm_head", {config.vocab_size, config.hidden_size});
  }
  return collector.take();
}

}  // namespace

int64_t ParameterSpec::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return count;
}

std::vector<ParameterSpec> parameters_of(const ModelConfig& config) {
  if (config.family == Family::kT5) {
    return t5_parameters(config);
  }
  Collector collector(config.initializer_range);
  const bool is_gpt2 = config.family == Family::kGpt2;
  const std::string base = is_gpt2 ? "transformer." : "model.";
  collector.matrix(
      base + (is_gpt2 ? "wte" : "embed_tokens"), {config.vocab_size, config.hidden_size});
  collector.last().init.zero_row = config.embedding_padding_row.value_or(-1);
  if (is_gpt2) {
    collector.matrix(base + "wpe", {config.max_positions, config.hidden_size});
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    collector.next_unit();
    (is_gpt2 ? add_gpt2_layer : add_llama_layer)(collector, config, layer_prefix(config, layer));
  }
  collector.next_unit();
  collector.norm(base + (is_gpt2 ? "ln_f" : "norm"), config.hidden_size, is_gpt2);
  if (!config.ties_head()) {
    collector.matrix(
        config.head.classifies() ? "score" : "lm_head", {config.head_rows(), config.hidden_size});
  }
  return collector.take();
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t sum = 0;
  for (const ParameterSpec& parameter : parameters_of(config)) {
    sum += parameter.elements();
  }
  return sum;
}

std::string layer_prefix(const ModelConfig& config, int64_t layer) {
  if (config.is_encoder_decoder()) {
    const bool encodes = layer < config.encoder_layers;
    return fmt::format(
        "{}.block.{}.",
        encodes ? "encoder" : "decoder",
        encodes ? layer : layer - config.encoder_layers);
  }
  return fmt::format(
      "{}.{}.", config.family == Family::kGpt2 ? "transformer.h" : "model.layers", layer);
}

std::string embedding_name(const ModelConfig& config) {
  if (config.family == Family::kT5) {
    return "shared.weight";
  }
  return config.family == Family::kGpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

std::string head_name(const ModelConfig& config) {
  if (config.ties_head()) {
    return embedding_name(config);
  }
  return config.head.classifies() ? "score.weight" : "lm_head.weight";
}

std::string relative_positions_prefix(const ModelConfig& config, int64_t layer) {
  return layer_prefix(config, layer) + "layer.0.SelfAttention.relative_attention_bias";
}

std::vector<std::string> aliases_of(const ModelConfig& config, const std::string& name) {
  std::vector<std::string> aliases;
  if (name == embedding_name(config)) {
    if (config.ties_head()) {
      aliases.emplace_back("lm_head.weight");
    }
    if (config.family == Family::kT5) {
      aliases.emplace_back("encoder.embed_tokens.weight");
      aliases.emplace_back("decoder.embed_tokens.weight");
    }
  } else if (config.family == Family::kT5 && name == head_name(config)) {
    // Newer files leave a head out that is not scaled and still equal to the embedding.
    aliases.push_back(embedding_name(config));
  }
  return aliases;
}

}  // namespace lockstep::model
