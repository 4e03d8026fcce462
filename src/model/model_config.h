// Model configuration from config.json: sizes, options and position encodings of all families. Keys
// and defaults follow Hugging Face. A plain struct read by all modules.
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
  kGelu,      // exact, with erf
  kGeluTanh,  // tanh approximation (gelu_new and its aliases)
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

/// Rotary position options. kNone is for families with other positions (GPT-2).
struct Rope {
  RopeType type = RopeType::kNone;
  double theta = 10000;
  double partial_rotary_factor = 1;  // rotated fraction of a head: int(head_dim * this) elements
  std::optional<double> factor;
  int64_t original_max_positions = 0;                          // used by llama3, yarn and longrope
  double low_frequency_factor = 1, high_frequency_factor = 4;  // used by llama3
  double beta_fast = 32, beta_slow = 1;                        // used by yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // used by yarn and longrope
  bool truncate = true;                                            // used by yarn
  std::vector<double> short_factor, long_factor;                   // used by longrope
  bool in_pairs = false;  // rotates elements 2i and 2i + 1; otherwise elements i and i + half
  bool operator==(const Rope&) const = default;
};

/// Relative positions: a learned bias of attention scores that depends on the distance of key and
/// query. Each short distance has its own table row; longer distances share rows (Raffel et al.,
/// "T5", 2020, section 2.1).
struct RelativePositions {
  int64_t buckets = 0;  // rows of the table; 0: no relative positions
  int64_t max_distance = 0;
  bool operator==(const RelativePositions&) const = default;
};

/// Function that maps router logits to the scores used to select and weight experts.
enum class RouterScores {
  kSoftmax,  // softmax over all experts
  kSigmoid,  // sigmoid per expert
};

/// Mixture of experts that replaces a block's MLP: small gated MLPs, of which each token uses only
/// a few (Shazeer et al., "Outrageously Large Neural Networks", 2017; Fedus et al., "Switch
/// Transformers", 2021, section 2). Router scores weight the expert outputs.
struct Experts {
  int64_t count = 0;           // 0: no mixture
  int64_t per_token = 0;       // number of experts per token, at most `count`
  int64_t width = 0;           // inner width of each expert
  bool normalizes = false;     // normalize the weights of a token's experts to sum to 1
  double balance_loss = 0;     // router_aux_loss_coef
  bool wants_balance = false;  // output_router_logits: transformers adds the balance loss
  std::vector<int64_t> dense_layers = {};  // layers with a dense MLP instead
  int64_t shared_width = 0;                // inner width of the shared expert; 0: none
  // gpt-oss: an expert computes (u + 1) g sigmoid(slope g), where the gate g is clamped from above
  // and u in both directions to the limit. 0: no limit and a plain gate.
  double gate_limit = 0, gate_slope = 1;
  // Router options of GLM-4.5, as in DeepSeek-V3 (DeepSeek-AI, 2024, section 2.1.2). For selection,
  // a correction that is not trained by gradient is added to the scores. Experts are selected only
  // from the groups (contiguous, of equal size) with the largest sums of their two best scores.
  RouterScores scores = RouterScores::kSoftmax;
  bool corrects_scores = false;
  int64_t groups = 1, groups_per_token = 1;
  double weight_factor = 1;   // factor of the selected experts' weights
  bool weighs_shared = true;  // multiply the shared expert's output by a sigmoid gate
  bool operator==(const Experts&) const = default;
};

/// Model configuration. Created and validated by parse_model_config() or preset(). Manual changes
/// must keep the sizes consistent.
struct ModelConfig {
  Family family = Family::kGpt2;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;          // number of all blocks
  int64_t encoder_layers = 0;  // number of encoder blocks, which come first; 0: no encoder
  int64_t heads = 0;
  int64_t kv_heads = 0;  // must divide heads
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  Activation activation = Activation::kGeluTanh;
  bool gated_mlp = false;     // the MLP multiplies an activation and a linear branch
  int64_t max_positions = 0;  // a hard limit for learned positions; see position_limit
  double norm_eps = 1e-5;
  bool tie_word_embeddings = false;  // value in the file; see ties_head
  HeadSpec head;
  // RMS norms on queries and keys before rotation, per head or over all heads (see the
  // description).
  bool head_norms = false;
  bool parallel_residual = false;    // attention and MLP read the same hidden states
  double query_key_value_limit = 0;  // clamps queries, keys and values to [-limit, limit]; 0: none
  Experts experts;
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
  /// If true, residual_dropout also applies to the attention output, not only to the MLP output.
  bool drops_attention_output = true;
  double mlp_dropout = 0;    // dropout after the MLP activation
  double final_dropout = 0;  // dropout after the last norm of a stack of blocks
  /// Window of each layer: position j is visible to i if i - window < j <= i; 0: no window.
  std::vector<int64_t> sliding_windows;
  bool scale_attention = true;                    // scale scores by 1 / sqrt(head_dim)
  std::optional<double> query_scalar;             // replaces head_dim in 1 / sqrt(head_dim)
  bool scale_attention_by_inverse_layer = false;  // also scale scores by 1 / (layer + 1)
  bool upcast_attention = false;  // compute scores in float32 regardless of the weight type
  bool attention_sinks = false;   // learned attention sink per head
  // Soft caps of scores and token logits: cap * tanh(x / cap) (Gemma 2, 2024, section 2); 0: no
  // cap.
  double score_cap = 0, logit_cap = 0;
  Rope rope;
  std::optional<Rope> window_rope;  // positions of sliding-window layers; nullopt: as other layers
  RelativePositions relative_positions;
  /// Encoder-only model: every token attends to its whole document, and there is no next-token
  /// prediction (the head is described in model/encoder_head.h).
  bool bidirectional = false;
  int64_t token_types = 0;        // rows of the segment table (for sequence pairs); 0: none
  int64_t first_position = 0;     // first row of the position table in use
  double classifier_dropout = 0;  // dropout of an encoder's classifier
  double embedding_scale = 1;     // factor of the embeddings, rounded to their type
  double head_scale = 1;          // factor of the hidden states before the head
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;
  int64_t decoder_start_token_id = 0;  // first token of the decoder input; encoder-decoders only
  /// Embedding row that is initialized to zero and not trained by look-ups (pad_token_id, in
  /// families that do so).
  std::optional<int64_t> embedding_padding_row;
  double initializer_range = 0.02;
  /// Quantization of linear weights in the checkpoint; nullopt: none.
  std::optional<Quantization> quantization;
  std::string json;  // original text; saving preserves its unknown keys

  bool is_encoder_decoder() const { return encoder_layers > 0; }
  /// Returns true if the head uses the embedding's weight.
  bool ties_head() const { return tie_word_embeddings && head.kind == HeadSpec::Kind::kLanguage; }
  /// Returns true if a classifier reads a row's first token instead of its last.
  bool classifies_first_token() const { return bidirectional; }
  /// Returns the number of rows of the head's weight: tokens or classes; 0 if it has none.
  int64_t head_rows() const {
    return head.classifies() ? std::ssize(head.labels) : head.gives_states() ? 0 : vocab_size;
  }
  /// Returns true if the block has experts instead of an MLP.
  bool has_experts(int64_t layer) const;
  /// Returns the number of query heads per key-value head.
  int64_t queries_per_kv_head() const { return heads / kv_heads; }
  /// Returns the rotary positions of a layer, which depend on its window.
  const Rope& rope_of(int64_t layer) const;
  /// Returns the number of rotated elements per head.
  int64_t rotary_dim(const Rope& rope) const;
  /// Returns the factor of attention scores.
  double attention_scale(int64_t layer) const;

  bool operator==(const ModelConfig&) const = default;
};

/// Returns the model_type in config.json: "gpt2", "llama", "gemma3_text", ...
std::string_view family_name(Family family);
/// Returns the maximum number of positions that the model can compute. Returns nullopt for rotary
/// and relative positions, which can exceed max_positions (at reduced quality).
std::optional<int64_t> position_limit(const ModelConfig& config);
/// Throws Error (kConfig) with the limit and its source if `positions` exceeds position_limit().
void check_positions(const ModelConfig& config, int64_t positions);

/// Parses a config.json. `source` is its name in errors. Throws one Error (kData) that lists all
/// problems: wrong types, sizes that are out of bounds or inconsistent, an unknown family, and
/// unsupported options. Preserves unknown keys. Makes no allocations whose size depends on parsed
/// values.
ModelConfig parse_model_config(std::string_view json, std::string_view source);
/// Parses a config.json file.
ModelConfig read_model_config(const std::filesystem::path& path);
/// Returns the config.json to save: the original text with all changes, `dtype` ("float32",
/// "bfloat16", ...) under its old and new key, and the architecture. Readable by the current
/// transformers and by version 4.
std::string to_json(const ModelConfig& config, std::string_view dtype);
/// Returns the config with another vocabulary size (at least 1), for a resized embedding.
ModelConfig with_vocabulary(ModelConfig config, int64_t vocab_size);
/// Returns the config with another, untied head. Throws Error (kConfig) for a classifier without
/// classes or on an encoder-decoder.
ModelConfig with_head(ModelConfig config, HeadSpec head);
/// Returns the config of a model truncated to its first `layers` blocks (at least 1), in encoder
/// and decoder if it has both.
ModelConfig with_first_layers(ModelConfig config, int64_t layers);

/// Returns the config of a built-in model: gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt2-tiny, ...
/// Throws Error (kConfig) for an unknown name, with the closest name.
ModelConfig preset(std::string_view name);
/// Returns the names of the built-in models.
std::vector<std::string> preset_names();

}  // namespace lockstep::model
