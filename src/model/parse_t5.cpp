// Parses T5's options in config.json.
#include "model/parse_t5.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::model {
namespace {

constexpr int64_t kMostBuckets = 1 << 16;
constexpr int64_t kMostDistance = int64_t{1} << 31;
constexpr double kMostHeadDropout = 0.999;
constexpr int64_t kDefaultBuckets = 32, kDefaultDistance = 128;

}  // namespace

T5Mlp parse_t5_mlp(ConfigReader& reader) {
  const std::string text = reader.text("feed_forward_proj", "relu");
  const size_t dash = text.find('-');
  if (dash == std::string::npos) {
    return {text, false};
  }
  const std::string activation = text.substr(dash + 1);
  if (text.substr(0, dash) != "gated" || activation.find('-') != std::string::npos) {
    reader.problem(
        "feed_forward_proj",
        fmt::format("\"{}\" is neither an activation nor \"gated-\" with an activation", text));
    return {"relu", false};
  }
  // "gelu" in T5 v1.1 configs means the tanh approximation, as in transformers.
  return {activation == "gelu" ? "gelu_new" : activation, true};
}

void parse_t5_options(ConfigReader& reader, ModelConfig& config) {
  if (!reader.boolean("is_encoder_decoder", true) || reader.boolean("is_decoder", false)) {
    reader.problem(
        "is_encoder_decoder", "an encoder or a decoder alone is not supported, only both together");
  }
  config.embedding_dropout = config.residual_dropout = config.mlp_dropout = config.final_dropout =
      config.attention_dropout;
  config.classifier_dropout = reader.number("classifier_dropout", 0, 0, kMostHeadDropout);
  config.scale_attention = false;
  config.initializer_range = reader.number("initializer_factor", 1, 0, 100);
  RelativePositions& relative = config.relative_positions;
  relative.buckets =
      reader.integer("relative_attention_num_buckets", kDefaultBuckets, 4, kMostBuckets);
  relative.max_distance =
      reader.integer("relative_attention_max_distance", kDefaultDistance, 2, kMostDistance);
  // Half of the buckets of each direction have exact distances. The logarithmic range after them
  // must not be empty.
  if (relative.max_distance <= relative.buckets / 2) {
    reader.problem(
        "relative_attention_max_distance",
        fmt::format(
            "{} is not more than half of the {} buckets", relative.max_distance, relative.buckets));
  }
  // Newer configs always declare a tied head and use a separate key for its scale, which is false
  // if an untied head was trained (v1.1).
  const bool scaled = reader.boolean("scale_decoder_outputs", config.tie_word_embeddings);
  config.tie_word_embeddings = config.tie_word_embeddings && scaled;
  config.head_scale = scaled ? 1 / std::sqrt(static_cast<double>(config.hidden_size)) : 1;
}

void parse_t5_tokens(ConfigReader& reader, ModelConfig& config) {
  const auto row = [&](const char* key, std::optional<int64_t> fallback) {
    const auto given = reader.optional_integer(key, 0, config.vocab_size - 1);
    return given ? given : fallback;
  };
  config.pad_token_id =
      row("pad_token_id",
          reader.object().contains("pad_token_id") ? std::nullopt : std::optional<int64_t>(0));
  const auto start = row("decoder_start_token_id", config.pad_token_id);
  if (!start) {
    reader.problem("decoder_start_token_id", "is missing, and pad_token_id is not set either");
    return;
  }
  config.decoder_start_token_id = *start;
}

}  // namespace lockstep::model
