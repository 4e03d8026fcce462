// Implements serialization of model configurations and derived quantities.
#include "model/model_config.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "model/family.h"

namespace lockstep::model {
namespace {

using nlohmann::json;

json number_or_null(const std::optional<int64_t>& value) {
  return value ? json(*value) : json(nullptr);
}

/// Writes only values that changed after parsing. All other text is preserved.
void write_changes(json& object, const ModelConfig& before, const ModelConfig& now) {
  const FamilyKeys& keys = keys_of(now.family);
  const auto write = [&](const char* key, const auto& old_value, const auto& new_value) {
    if (old_value != new_value) {
      object[key] = new_value;
    }
  };
  write(keys.vocab_size, before.vocab_size, now.vocab_size);
  write(keys.max_positions, before.max_positions, now.max_positions);
  write("tie_word_embeddings", before.tie_word_embeddings, now.tie_word_embeddings);
  write("initializer_range", before.initializer_range, now.initializer_range);
  write(keys.norm_eps, before.norm_eps, now.norm_eps);
  write(keys.attention_dropout, before.attention_dropout, now.attention_dropout);
  // T5's single dropout key is handled above.
  if (keys.embedding_dropout != nullptr) {
    write(keys.embedding_dropout, before.embedding_dropout, now.embedding_dropout);
  }
  if (keys.residual_dropout != nullptr) {
    write(keys.residual_dropout, before.residual_dropout, now.residual_dropout);
  }
  if (before.head != now.head && now.head.classifies()) {
    json names = json::object(), numbers = json::object();
    for (size_t id = 0; id < now.head.labels.size(); ++id) {
      names[std::to_string(id)] = now.head.labels[id];
      numbers[now.head.labels[id]] = id;
    }
    object["id2label"] = names;
    object["label2id"] = numbers;
    object.erase("num_labels");  // may contradict the labels
  }
  if (now.head.classifies()) {
    object["problem_type"] = name_of(now.head.problem);
  }
  if (now.quantization) {
    object["quantization_config"] = to_json(*now.quantization, now);
  } else {
    object.erase("quantization_config");
  }
  if (before.bos_token_id != now.bos_token_id) {
    object["bos_token_id"] = number_or_null(now.bos_token_id);
  }
  if (before.pad_token_id != now.pad_token_id) {
    object["pad_token_id"] = number_or_null(now.pad_token_id);
  }
  if (before.eos_token_ids != now.eos_token_ids) {
    const auto& ids = now.eos_token_ids;
    object["eos_token_id"] = ids.empty()       ? json(nullptr)
                             : ids.size() == 1 ? json(ids[0])
                                               : json(ids);
  }
}

bool same_structure(const ModelConfig& a, const ModelConfig& b) {
  return a.hidden_size == b.hidden_size && a.layers == b.layers &&
         a.encoder_layers == b.encoder_layers && a.heads == b.heads && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.intermediate_size == b.intermediate_size &&
         a.activation == b.activation && a.gated_mlp == b.gated_mlp &&
         a.relative_positions == b.relative_positions && a.head_scale == b.head_scale &&
         a.head_norms == b.head_norms && a.qkv_bias == b.qkv_bias &&
         a.attention_out_bias == b.attention_out_bias && a.mlp_bias == b.mlp_bias &&
         a.sliding_windows == b.sliding_windows && a.scale_attention == b.scale_attention &&
         a.scale_attention_by_inverse_layer == b.scale_attention_by_inverse_layer &&
         a.query_scalar == b.query_scalar && a.score_cap == b.score_cap &&
         a.logit_cap == b.logit_cap && a.attention_sinks == b.attention_sinks &&
         a.embedding_scale == b.embedding_scale && a.parallel_residual == b.parallel_residual &&
         a.rope == b.rope && a.window_rope == b.window_rope &&
         a.query_key_value_limit == b.query_key_value_limit && a.experts == b.experts &&
         a.token_types == b.token_types && a.first_position == b.first_position;
}

}  // namespace

const Rope& ModelConfig::rope_of(int64_t layer) const {
  const bool slides = sliding_windows.at(static_cast<size_t>(layer)) > 0;
  return slides && window_rope ? *window_rope : rope;
}

int64_t ModelConfig::rotary_dim(const Rope& rope) const {
  return rope.type == RopeType::kNone
             ? 0
             : static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

bool ModelConfig::has_experts(int64_t layer) const {
  const auto& dense = experts.dense_layers;
  return experts.count > 0 && std::find(dense.begin(), dense.end(), layer) == dense.end();
}

double ModelConfig::attention_scale(int64_t layer) const {
  const double scale =
      scale_attention ? 1 / std::sqrt(query_scalar.value_or(static_cast<double>(head_dim))) : 1;
  return scale_attention_by_inverse_layer ? scale / static_cast<double>(layer + 1) : scale;
}

std::optional<int64_t> position_limit(const ModelConfig& config) {
  const bool learned =
      config.rope.type == RopeType::kNone && config.relative_positions.buckets == 0;
  return learned ? std::optional(config.max_positions - config.first_position) : std::nullopt;
}

void check_positions(const ModelConfig& config, int64_t positions) {
  const auto limit = position_limit(config);
  if (limit && positions > *limit) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} positions exceed the {} that the model has learned ({} in its config.json)",
            positions,
            *limit,
            keys_of(config.family).max_positions),
        "use shorter sequences, or a model with rotary positions");
  }
}

std::string to_json(const ModelConfig& config, std::string_view dtype) {
  const std::string_view source = "the text of the model's configuration";
  const ModelConfig before = parse_model_config(config.json, source);
  if (!same_structure(before, config)) {
    throw Error(
        ErrorKind::kInternal,
        "the model's structure was changed after its configuration was read; it cannot be saved");
  }
  json object = parse_json(config.json, source);
  write_changes(object, before, config);
  object["architectures"] = {architecture_with(config.head, keys_of(config.family).architecture)};
  object["dtype"] = std::string(dtype);
  object["torch_dtype"] = std::string(dtype);
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

ModelConfig with_vocabulary(ModelConfig config, int64_t vocab_size) {
  if (vocab_size < 1) {
    throw Error(
        ErrorKind::kInternal, fmt::format("invalid vocabulary size: {} tokens", vocab_size));
  }
  config.vocab_size = vocab_size;
  return config;
}

ModelConfig with_head(ModelConfig config, HeadSpec head) {
  const size_t least = head.problem == ProblemType::kSingleLabel ? 2 : 1;
  if (head.classifies() && head.labels.size() < least) {
    throw Error(
        ErrorKind::kConfig,
        head.labels.empty() ? "a classifier requires classes"
                            : "a classifier requires two classes or more",
        "list its labels");
  }
  if (head.gives_states()) {
    if (head.layers < 1 || head.layers > config.layers || config.is_encoder_decoder()) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("cannot read states after layer {} of {}", head.layers, config.layers));
    }
    config = with_first_layers(std::move(config), head.layers);
  }
  config.head = std::move(head);
  return config;
}

ModelConfig with_first_layers(ModelConfig config, int64_t layers) {
  const auto windows = config.sliding_windows;
  const int64_t encoder = std::min(layers, config.encoder_layers);
  const int64_t others = std::min(layers, config.layers - config.encoder_layers);
  const auto first = windows.begin() + config.encoder_layers;
  config.sliding_windows.assign(windows.begin(), windows.begin() + encoder);
  config.sliding_windows.insert(config.sliding_windows.end(), first, first + others);
  config.encoder_layers = encoder;
  config.layers = encoder + others;
  return config;
}

}  // namespace lockstep::model
