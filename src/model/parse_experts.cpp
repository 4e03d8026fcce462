// Parses the mixture-of-experts options of config.json.
#include "model/parse_experts.h"

#include <algorithm>
#include <vector>

#include "base/format.h"

namespace lockstep::model {
namespace {

constexpr int64_t kMostExperts = 1 << 14;

/// Parses the number of experts. transformers accepts two names for it.
int64_t parse_count(ConfigReader& reader, const MixtureForm& form) {
  const int64_t least = form.may_be_dense ? 0 : 1;
  const auto named = reader.optional_integer(form.count_key, least, kMostExperts);
  const auto also = reader.optional_integer(form.other_count_key, least, kMostExperts);
  if (named && also && *named != *also) {
    reader.problem(
        form.count_key, fmt::format("is {}, and {} is {}", *named, form.other_count_key, *also));
  }
  return named ? *named : also.value_or(form.count);
}

/// Returns the layers with a dense MLP. A block has experts if it is not listed as dense and its
/// number, counted from 1, is a multiple of the step.
std::vector<int64_t> parse_dense_layers(ConfigReader& reader, const ModelConfig& config) {
  const int64_t step = reader.integer("decoder_sparse_step", 1, 1, kMostExperts);
  const auto listed = reader.integers("mlp_only_layers", 0, kMostExperts, kMostExperts);
  std::vector<int64_t> dense;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool is_listed = std::find(listed.begin(), listed.end(), layer) != listed.end();
    if (is_listed || (layer + 1) % step != 0) {
      dense.push_back(layer);
    }
  }
  return dense;
}

}  // namespace

void parse_attention_bias(ConfigReader& reader, ModelConfig& config, bool fallback) {
  config.qkv_bias = config.attention_out_bias = reader.boolean("attention_bias", fallback);
}

void parse_mixture(ConfigReader& reader, ModelConfig& config, const MixtureForm& form) {
  Experts& experts = config.experts;
  experts.count = parse_count(reader, form);
  experts.per_token = reader.integer("num_experts_per_tok", form.per_token, 1, kMostExperts);
  experts.width = form.width > 0
                      ? reader.integer("moe_intermediate_size", form.width, 1, kMostExpertWidth)
                      : config.intermediate_size;
  experts.normalizes = form.always_normalizes || reader.boolean("norm_topk_prob", form.normalizes);
  experts.balance_loss = reader.number("router_aux_loss_coef", form.balance_loss, 0, 1e6);
  experts.wants_balance = reader.boolean("output_router_logits", false);
  if (form.may_be_dense) {
    experts.dense_layers = parse_dense_layers(reader, config);
  }
  if (experts.count > 0 && experts.per_token > experts.count) {
    reader.problem(
        "num_experts_per_tok",
        fmt::format("is {}, but there are {} experts", experts.per_token, experts.count));
  }
  if (experts.count == 0 ||
      std::ssize(experts.dense_layers) == static_cast<std::ptrdiff_t>(config.layers)) {
    experts = {};
  }
  if (reader.number("router_jitter_noise", 0, -1e6, 1e6) != 0) {
    reader.problem("router_jitter_noise", "router noise in training is not supported (only 0 is)");
  }
}

}  // namespace lockstep::model
