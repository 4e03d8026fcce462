// Inputs of a forward pass and the tables that its blocks share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>

#include "base/counter_random.h"
#include "model/model_config.h"
#include "nn/targets.h"
#include "ops/attention.h"

namespace lockstep::nn {

class DropoutKeys;
class KeyValueCache;
struct ExpertCapacity;
struct RouterTerms;
struct RoutingLog;

/// Cosines and sines of the rotary positions: float32 [T, d], or [B, T, d] for explicit positions,
/// where d is rotary_dim / 2.
struct Rotary {
  Tensor cos, sin;
};
/// Rotary tables, keyed by device and by whether the layer has a sliding window.
using RotaryTables = std::map<std::tuple<int, int, bool>, Rotary>;

struct ForwardInputs {
  Tensor ids;       // [B, T] int64
  Targets targets;  // required for scores and the loss
  Tensor source;    // [B, S] int64: encoder input of an encoder-decoder. `ids` is then the decoder
                    // input, which starts with decoder_start_token_id
  Tensor source_mask;  // [B, S] bool: non-padding tokens of the whole source, even if `source` is a
                       // slice; undefined: all
  Tensor source_positions;  // [S] int64: positions of the source tokens, if `source` is a slice
  int64_t whole_source_length = 0;  // length of the whole source, if `source` is a slice
  Tensor samples;  // [B] int64 on the CPU: index of each row in the sampler's stream; used only for
                   // dropout and noise
  Tensor token_samples;  // [B, T, 2] int64 on the CPU: document number and position in the document
                         // for each token, if each document of a row is a sample. Covers whole rows
                         // even if `ids` is a slice. Undefined: each row is one sample
  uint64_t seed = 0;     // random seed of dropout and noise
  int64_t step = 0;      // step number, which is part of the dropout keys
  bool training = false;       // enables dropout
  double embedding_noise = 0;  // largest absolute value of the noise that is added to the token
                               // embeddings (EmbeddingNoise); 0: no noise
  /// Dropout keys of this step and these samples in device memory; null: keys are computed for each
  /// dropout. Cannot be combined with token_samples.
  std::shared_ptr<DropoutKeys> dropout_keys;
  Tensor token_types;  // [B, T] int64, only for encoders: segment of each token; undefined: 0.
                       // Sliced like `ids`
  Tensor positions;    // [B, T] int64; undefined: consecutive positions that start at the length of
                       // the cache, or at 0 without a cache
  /// [B, T] int64, for packed rows: index in the row at which each token's document starts. A token
  /// attends only within its document, and `positions` restart at 0 in each document. Covers whole
  /// rows even if `ids` is a slice. Undefined: each row is one document. Only for decoders without
  /// a cache.
  Tensor document_starts;
  ops::DocumentOffsets document_offsets;  // document boundaries as offsets on the rows' device;
                                          // only on GPUs, and only if this rank has whole rows
  /// [B, T] int64, for rows that hold trees of sequences with shared prefixes: end index of the
  /// tokens that attend to each token (ops::AttentionOptions::seen_until). `positions` count within
  /// each sequence. Requires whole rows and a model for which takes_trees() is true. Undefined:
  /// every document is one sequence.
  Tensor seen_until;
  /// [B, T] bool: non-padding tokens; undefined: all. Only used by mixtures of experts, which
  /// balance the load over these tokens. Sliced like `ids`.
  Tensor real_tokens;
  /// Auxiliary loss terms of mixtures of experts (nn/routing.h); null: no terms.
  std::shared_ptr<const RouterTerms> router_terms;
  std::shared_ptr<RoutingLog> routing_log;  // receives routing statistics; null: not recorded
  /// Expert capacity (nn/expert_capacity.h); null: no tokens are dropped.
  std::shared_ptr<const ExpertCapacity> expert_capacity;
  int64_t whole_length = 0;  // length of the whole sequence if `ids` is a slice or padded; 0: T
  /// Cache of rotary tables, filled by the first pass that uses it. All passes that share it must
  /// have the same positions. Null: each pass computes its own tables.
  std::shared_ptr<RotaryTables> rotary_tables;
  /// Keys and values of the tokens that precede `ids`. The keys and values of `ids` are appended.
  KeyValueCache* cache = nullptr;
};

/// Returns true if rows may hold trees of sequences with shared prefixes. This requires a decoder
/// whose only position information is rotary embeddings that do not depend on the sequence length.
bool takes_trees(const model::ModelConfig& config);

/// Returns the key of a dropout site, computed from the role and the layer of its slot. Any two
/// dropouts of a model have different masks.
constexpr int64_t dropout_site(std::string_view role, int64_t layer) {
  return static_cast<int64_t>(derive_key(hash_name(role), static_cast<uint64_t>(layer)));
}

/// Direction of attention within the sequence.
enum class Visibility { kCausal, kBoth };

/// Returns the row of the relative-position table for each distance from query to key (int64, any
/// shape; negative: the key precedes the query). kBoth uses half of the rows for each direction.
/// In each direction, half of the rows cover one distance each. The others cover ranges that grow
/// geometrically up to max_distance, and the last row covers all larger distances (Raffel et al.,
/// 2020, section 2.1).
Tensor relative_position_buckets(
    const Tensor& distance, Visibility visibility, const model::RelativePositions& positions);

/// State of one forward pass of the model or of a pipeline stage. The config must outlive it.
class ForwardContext {
 public:
  /// Validates shapes and the model's position limit. Throws Error (kConfig) if they are invalid.
  ForwardContext(const model::ModelConfig& config, ForwardInputs inputs);

  const ForwardInputs& inputs() const { return inputs_; }
  bool training() const { return inputs_.training; }
  KeyValueCache* cache() const { return inputs_.cache; }
  int64_t length() const { return length_; }  // number of positions T
  int64_t first_position() const {
    return first_;
  }  // position of ids[:, 0], if no explicit positions are given
  /// Returns the rotary table of a layer on the device. Computed once for each device and type of
  /// layer.
  const Rotary& rotary(at::Device device, int64_t layer) const;
  /// Returns true if this pass runs the encoder. Returns false if the cache already contains the
  /// encoder's keys and values.
  bool encodes() const;
  /// Returns the source tokens that may be attended to, bool [B, 1, 1, S]; undefined: all.
  Tensor visible_source(at::Device device) const;
  /// Returns the causal mask, bool [T, S]: each id attends to itself and to earlier ids, including
  /// those in the cache.
  Tensor visible_target(at::Device device) const;
  /// Returns the row of the relative-position table for each query and key, int64 [T, S]. kBoth:
  /// over the source tokens; kCausal: over the ids, including those in the cache. If this rank
  /// holds a slice of the sequence, queries are local and keys cover the whole sequence.
  const Tensor& relative_buckets(Visibility visibility, at::Device device) const;
  /// Returns the dropout keys of the rows, derived from (seed, step, sample, site): int64 [B] on
  /// the CPU, or on the device of inputs().dropout_keys. If documents are samples: [B, T, 2] with
  /// each token's document key and its position in the document.
  Tensor dropout_keys(int64_t site) const;
  /// Returns the numbers of this pass's tokens, int64 [B, T] on the CPU, derived from the sample
  /// and the position in the sequence. `places` [T] int64 are the positions.
  Tensor token_numbers(const Tensor& places) const;
  /// Returns a context for rows [R, 1, C] of single tokens with the given numbers. The dropout mask
  /// of a token is then the same in any row.
  ForwardContext of_tokens(const Tensor& numbers) const;

 private:
  void check_source() const;
  void check_documents() const;
  /// Returns the positions of the queries, [T], and of the keys, [S].
  std::pair<Tensor, Tensor> places(Visibility visibility, at::Device device) const;

  const model::ModelConfig& config_;
  ForwardInputs inputs_;
  int64_t length_, first_;
  std::shared_ptr<RotaryTables> rotary_;
  mutable std::map<std::tuple<Visibility, int, int>, Tensor> buckets_;
};

using Context = std::shared_ptr<const ForwardContext>;

}  // namespace lockstep::nn
