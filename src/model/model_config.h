// What a model is, from its config.json: sizes, options and positions of the families.
// Key names and defaults are Hugging Face's; what is here is a plain struct that every module
// reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/head.h"
#include "model/quantization.h"

namespace lockstep::model {

enum class Family {
  kGpt2,
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kT5,
  kMixtral,
  kQwen3Moe,
  kQwen2Moe,
  kOlmoe,
  kGptOss,
  kGemma,
  kGemma2,
  kGemma3,
  kPhi3,
  kGptNeoX,
  kGptNeo,
  kOlmo2,
  kOlmo3,
  kGlm,
  kGlm4,
  kChatGlm,
  kGlm4Moe,
  kBert,
  kRoberta,
  kDistilBert,
};

enum class Activation {
  kGelu,      // by the error function
  kGeluTanh,  // gelu_new and its like
  kRelu,
  kRelu2,
  kRelu6,
  kSilu,
  kTanh,
  kSigmoid,
  kQuickGelu,
  kMish,
  kLeakyRelu,
  kHardswish,
  kLinear,
};

enum class RopeType { kNone, kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

/// Rotary positions. A family with learned positions (GPT-2) has kNone.
struct Rope {
  RopeType type = RopeType::kNone;
  double theta = 10000;
  double partial_rotary_factor = 1;  // the first int(head_dim * this) numbers of a head are rotated
  std::optional<double> factor;
  int64_t original_max_positions = 0;                              // llama3, yarn, longrope
  double low_frequency_factor = 1, high_frequency_factor = 4;      // llama3
  double beta_fast = 32, beta_slow = 1;                            // yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // yarn, longrope
  bool truncate = true;                                            // yarn
  std::vector<double> short_factor, long_factor;                   // longrope
  bool in_pairs = false;  // number 2i turns with 2i + 1; else with the one half of them further on
  bool operator==(const Rope&) const = default;
};

/// Positions as a learned bias of attention scores, by the distance of key and query: one row of a
/// table for each short distance, further ones share rows (Raffel et al., "T5", 2020, section 2.1).
struct RelativePositions {
  int64_t buckets = 0;  // rows of a table; 0: the model has none
  int64_t max_distance = 0;
  bool operator==(const RelativePositions&) const = default;
};

/// What a router makes of its logits: the scores by which a token's experts are chosen and weighed.
enum class RouterScores {
  kSoftmax,  // over all experts
  kSigmoid,  // of each by itself
};

/// A mixture of experts in place of the MLP of a block: small gated MLPs, of which each token goes
/// through a few (Shazeer et al., "Outrageously Large Neural Networks", 2017; Fedus et al., "Switch
/// Transformers", 2021, section 2). A router's scores give their weights.
struct Experts {
  int64_t count = 0;           // 0: the model has none
  int64_t per_token = 0;       // the likeliest, that a token goes through; at most `count`
  int64_t width = 0;           // inside of each
  bool normalizes = false;     // the weights of a token's experts are divided by their sum
  double balance_loss = 0;     // router_aux_loss_coef
  bool wants_balance = false;  // output_router_logits: transformers adds that loss
  std::vector<int64_t> dense_layers = {};  // those that have an MLP instead
  int64_t shared_width = 0;  // inside of an expert that every token goes through; 0: there is none
  // gpt-oss: an expert's gate g, cut to at most the limit, and what it multiplies u, cut to it in
  // either direction, become (u + 1) g sigmoid(slope g). 0: no limit, and a plain gate.
  double gate_limit = 0, gate_slope = 1;
  // GLM-4.5's routers, which are DeepSeek-V3's (DeepSeek-AI, 2024, section 2.1.2): scores are
  // compared with a correction added that no gradient trains, and experts only chosen from the
  // groups (neighbours, as many in each) whose two best add up to the most.
  RouterScores scores = RouterScores::kSoftmax;
  bool corrects_scores = false;
  int64_t groups = 1, groups_per_token = 1;
  double weight_factor = 1;   // of the chosen experts' weights
  bool weighs_shared = true;  // what the shared expert gives, by the sigmoid of a product; else 1
  bool operator==(const Experts&) const = default;
};

/// A model's description. Made by parse_model_config or preset, which check it; a change by hand
/// must keep the sizes consistent.
struct ModelConfig {
  Family family = Family::kGpt2;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;          // all blocks, in the order of use
  int64_t encoder_layers = 0;  // the first of them, where an encoder reads a source; else 0
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  Activation activation = Activation::kGeluTanh;
  bool gated_mlp = false;     // the activation of one matrix times another
  int64_t max_positions = 0;  // a hard limit where positions are learned: see position_limit
  double norm_eps = 1e-5;
  bool tie_word_embeddings = false;  // as the file says: see ties_head
  HeadSpec head;
  // RMS norms of queries and keys, before they are rotated: of each head, or of all heads together,
  // as the description has it.
  bool head_norms = false;
  bool parallel_residual = false;    // attention and MLP read the same hidden states
  double query_key_value_limit = 0;  // their numbers are cut to it, in either direction; 0: none
  Experts experts;
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
  bool drops_attention_output = true;  // residual_dropout acts on it, and not on the MLP's alone
  double mlp_dropout = 0;              // of the activation's output
  double final_dropout = 0;            // after the last norm of a stack of blocks
  /// One number a layer: position j is visible to i where i - window < j <= i; 0 is no window.
  std::vector<int64_t> sliding_windows;
  bool scale_attention = true;                    // by 1 / sqrt(head_dim)
  std::optional<double> query_scalar;             // what stands in the root in place of head_dim
  bool scale_attention_by_inverse_layer = false;  // and by 1 / (layer + 1)
  bool upcast_attention = false;  // scores in float32 whatever the type of the weights
  bool attention_sinks = false;   // a learned score of each head that no key has
  // Scores, and the logits of tokens, become cap * tanh(x / cap) (Gemma 2, 2024, section 2); 0:
  // not.
  double score_cap = 0, logit_cap = 0;
  Rope rope;
  std::optional<Rope> window_rope;  // of layers with a sliding window; nothing: as the others
  RelativePositions relative_positions;
  /// Every token sees all of its document, and none is predicted from those before it: an encoder
  /// alone (model/encoder_head.h says what its head does).
  bool bidirectional = false;
  int64_t token_types = 0;        // rows of the table of segments (of pairs of texts); 0: none
  int64_t first_position = 0;     // learned positions begin at this row of their table
  double classifier_dropout = 0;  // of an encoder's classifier
  double embedding_scale = 1;     // of the tokens' rows, rounded to their type
  double head_scale = 1;          // of the hidden states, before the head
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;
  int64_t decoder_start_token_id = 0;  // what a decoder reads first; of an encoder-decoder
  /// The row of the embedding that starts at zero and learns nothing by look-up (pad_token_id,
  /// where the family has it so).
  std::optional<int64_t> embedding_padding_row;
  double initializer_range = 0.02;
  /// How its folder holds the weights of linears; nothing: as they are.
  std::optional<Quantization> quantization;
  std::string json;  // the text it was read from: saving keeps the keys that we do not know

  bool is_encoder_decoder() const { return encoder_layers > 0; }
  /// Whether the head reads the embedding's weight.
  bool ties_head() const { return tie_word_embeddings && head.kind == HeadSpec::Kind::kLanguage; }
  /// Whether a classifier reads a row's first token, and not its last one.
  bool classifies_first_token() const { return bidirectional; }
  /// The rows of its weight: tokens or classes; 0 where it has none.
  int64_t head_rows() const {
    return head.classifies() ? std::ssize(head.labels) : head.gives_states() ? 0 : vocab_size;
  }
  /// Whether a block has experts in place of its MLP.
  bool has_experts(int64_t layer) const;
  /// The queries that one key-value head serves.
  int64_t queries_per_kv_head() const { return heads / kv_heads; }
  /// The rotary positions of a layer, by its window.
  const Rope& rope_of(int64_t layer) const;
  /// The numbers of a head that they turn.
  int64_t rotary_dim(const Rope& rope) const;
  /// What scores are multiplied by.
  double attention_scale(int64_t layer) const;

  bool operator==(const ModelConfig&) const = default;
};

/// "gpt2", "llama", "gemma3_text", ...: a config.json's model_type.
std::string_view family_name(Family family);
/// The largest number of positions that the model can compute at all; nothing where positions are
/// rotary or relative, which go on past max_positions (with a quality of their own).
std::optional<int64_t> position_limit(const ModelConfig& config);
/// Throws (kConfig) where `positions` is past position_limit, saying what the limit is and where it
/// comes from.
void check_positions(const ModelConfig& config, int64_t positions);

/// Reads the text of a config.json. `source` names it in errors. Nothing is allocated by the sizes
/// that it holds. Throws one Error (kData) that lists every problem: wrong types, sizes out of
/// bounds or that do not fit each other, an unknown family, and keys that change the mathematics in
/// ways that are not supported. Unknown keys are kept.
ModelConfig parse_model_config(std::string_view json, std::string_view source);
/// The same, of a file.
ModelConfig read_model_config(const std::filesystem::path& path);
/// The config.json to save: the text it came from, with what was changed since, `dtype` ("float32",
/// "bfloat16", ...) under its old and its new name, and the architecture. Hugging Face's loader of
/// today and of version 4 read it.
std::string to_json(const ModelConfig& config, std::string_view dtype);
/// The config with another vocabulary size (1 or more), for an embedding that is resized.
ModelConfig with_vocabulary(ModelConfig config, int64_t vocab_size);
/// The config with another head, whose weight is then the model's own. Error (kConfig): a
/// classifier without classes, or of an encoder-decoder.
ModelConfig with_head(ModelConfig config, HeadSpec head);
/// The model's first `layers` blocks (1 or more), of the encoder and of the decoder each where it
/// has both: a smaller model of the same kind.
ModelConfig with_first_layers(ModelConfig config, int64_t layers);

/// A built-in model: gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt2-tiny, ... An unknown name is an
/// Error (kConfig) with the nearest one.
ModelConfig preset(std::string_view name);
/// The names that preset() knows.
std::vector<std::string> preset_names();

}  // namespace lockstep::model
