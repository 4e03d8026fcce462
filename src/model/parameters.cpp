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
  std::vector<ParameterSpec> take() { return std::move(parameters_); }
  ParameterSpec& last() { return parameters_.back(); }

 private:
  void add(
      std::string name, std::vector<int64_t> shape, Initialization::Kind kind, double deviation) {
    const bool is_matrix = shape.size() > 1;
    parameters_.push_back({std::move(name), std::move(shape), {kind, deviation, -1}, is_matrix});
  }
  double deviation_;
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
  linear("self_attn.o_proj", width, queries, config.attention_out_bias);
  collector.norm(prefix + "post_attention_layernorm", width, false);
  linear("mlp.gate_proj", inner, width, config.mlp_bias);
  linear("mlp.up_proj", inner, width, config.mlp_bias);
  linear("mlp.down_proj", width, inner, config.mlp_bias);
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
    (is_gpt2 ? add_gpt2_layer : add_llama_layer)(collector, config, layer_prefix(config, layer));
  }
  collector.norm(base + (is_gpt2 ? "ln_f" : "norm"), config.hidden_size, is_gpt2);
  if (!config.tie_word_embeddings) {
    collector.matrix("lm_head", {config.vocab_size, config.hidden_size});
  }
  return collector.take();
}

int64_t parameter_count(const ModelConfig& config) {
  // One layer stands for all: the list of a deep model need not be made.
  ModelConfig one = config;
  one.layers = 1;
  ModelConfig two = config;
  two.layers = 2;
  const auto count = [](const ModelConfig& some) {
    int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters_of(some)) {
      sum += parameter.elements();
    }
    return sum;
  };
  const int64_t first = count(one);
  return first + (config.layers - 1) * (count(two) - first);
}

std::string layer_prefix(const ModelConfig& config, int64_t layer) {
  return fmt::format(
      "{}.{}.", config.family == Family::kGpt2 ? "transformer.h" : "model.layers", layer);
}

std::string embedding_name(const ModelConfig& config) {
  return config.family == Family::kGpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

std::string head_name(const ModelConfig& config) {
  return config.tie_word_embeddings ? embedding_name(config) : "lm_head.weight";
}

}  // namespace lockstep::model
