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

/// Cosines and sines of rotary positions: [T, d] float32, or [B, T, d] if explicit positions are
/// given; d is rotary_dim / 2.
struct Rotary {
  Tensor cos, sin;
};
/// Keyed by device and by whether the layer has a sliding window.
using RotaryTables = std::map<std::tuple<int, int, bool>, Rotary>;

struct ForwardInputs {
  Tensor ids;       // [B, T] int64
  Targets targets;  // required for scores and the loss
  Tensor source;    // [B, S] int64: encoder input of an encoder-decoder; `ids` is then the decoder
                    // input, starting with decoder_start_token_id
  Tensor source_mask;  // [B, S] bool: non-padding tokens of the source; undefined: all. Covers the
                       // whole source even if `source` is a slice of it
  Tensor source_positions;  // [S] int64: positions of the source tokens, if `source` is a slice
  int64_t whole_source_length = 0;  // length of the whole source
  Tensor samples;  // [B] int64, CPU: index of each row in the sampler's stream; only for dropout
  Tensor token_samples;  // [B, T, 2] int64, CPU, if each document of a row is a sample: the
                         // document's number and the token's position in it. Covers whole rows even
                         // if `ids` is a slice. Undefined: a row is one sample
  uint64_t seed = 0;     // seed of dropout
  int64_t step = 0;      // step number, used for dropout keys
  bool training = false;  // enables dropout
  /// Device-resident dropout keys of this step and these samples; null: keys are computed for each
  /// dropout. Not compatible with token_samples.
  std::shared_ptr<DropoutKeys> dropout_keys;
  Tensor token_types;  // [B, T] int64, encoders only: segment of each token; undefined: 0. Sliced
                       // as `ids`
  Tensor positions;    // [B, T] int64; undefined: consecutive, starting at the length of the cache,
                       // or at 0
  /// [B, T] int64, for packed rows: index in the row at which each token's document starts. A token
  /// attends only within its document, and `positions` restart at 0 in each. Covers whole rows even
  /// if `ids` is a slice. Undefined: a row is one document. Decoders without a cache only.
  Tensor document_starts;
  ops::DocumentOffsets document_offsets;  // the same on the rows' device: GPUs only, and only if
                                          // this rank has whole rows
  /// [B, T] int64, for rows with trees of sequences that share prefixes: index of the end of the
  /// last token that attends to each token (ops::AttentionOptions::seen_until); `positions` count
  /// within each sequence. Requires whole rows and a model that supports trees (takes_trees()).
  /// Undefined: every document is one sequence.
  Tensor seen_until;
  /// [B, T] bool: non-padding tokens; undefined: all. Used only by mixtures of experts, which
  /// balance over these tokens. Sliced as `ids`.
  Tensor real_tokens;
  /// Auxiliary loss terms of mixtures of experts (nn/routing.h); null: none.
  std::shared_ptr<const RouterTerms> router_terms;
  std::shared_ptr<RoutingLog> routing_log;  // output: routing statistics; null: not recorded
  /// Expert capacity (nn/expert_capacity.h); null: no token is dropped.
  std::shared_ptr<const ExpertCapacity> expert_capacity;
  int64_t whole_length = 0;  // length of the whole sequence if `ids` is sliced or padded; 0: T
  /// Cache of rotary tables, filled by the first of the passes that share it; these must have the
  /// same positions. Null: each pass computes its own.
  std::shared_ptr<RotaryTables> rotary_tables;
  /// Keys and values of the tokens before `ids`; those of `ids` are appended.
  KeyValueCache* cache = nullptr;
};

/// Returns true if rows may hold trees of sequences that share prefixes: decoders whose only
/// position information is rotary embeddings that do not depend on the sequence length.
bool takes_trees(const model::ModelConfig& config);

/// Key of a dropout site, computed from the role and layer of its slot. A model may have any number
/// of dropouts; no two draw the same mask.
constexpr int64_t dropout_site(std::string_view role, int64_t layer) {
  return static_cast<int64_t>(derive_key(hash_name(role), static_cast<uint64_t>(layer)));
}

/// Attention direction within the sequence.
enum class Visibility { kCausal, kBoth };

/// Returns the row of the relative-position table for each distance from query to key (int64, any
/// shape; negative: the key precedes the query). kBoth uses half of the rows for each direction.
/// Within a direction, half of the rows cover one distance each, the others grow geometrically up
/// to max_distance, and the last row covers all larger distances (Raffel et al., 2020, section
/// 2.1).
Tensor relative_position_buckets(
    const Tensor& distance, Visibility visibility, const model::RelativePositions& positions);

/// Per-pass state, created once for each forward pass, also of a pipeline stage. The config must
/// outlive it.
class ForwardContext {
 public:
  /// Validates shapes and the model's position limit. Throws Error (kConfig).
  ForwardContext(const model::ModelConfig& config, ForwardInputs inputs);

  const ForwardInputs& inputs() const { return inputs_; }
  bool training() const { return inputs_.training; }
  KeyValueCache* cache() const { return inputs_.cache; }
  int64_t length() const { return length_; }  // T
  int64_t first_position() const {
    return first_;
  }  // position of ids[:, 0] if no explicit positions are given
  /// Returns the rotary table of a layer on the device; computed once for each device and kind of
  /// layer.
  const Rotary& rotary(at::Device device, int64_t layer) const;
  /// Returns true if this pass runs the encoder. If false, the cache already has its keys and
  /// values.
  bool encodes() const;
  /// Source tokens that may be attended to, bool [B, 1, 1, S]; undefined: all.
  Tensor visible_source(at::Device device) const;
  /// [T, S] bool, causal mask: each id attends to itself and to earlier ids, including those in the
  /// cache.
  Tensor visible_target(at::Device device) const;
  /// [T, S] int64: row of the relative-position table for each query and key. kBoth: over the
  /// source tokens; kCausal: over the ids, including those in the cache. If this rank holds a slice
  /// of the sequence, the queries are local and the keys cover the whole sequence.
  const Tensor& relative_buckets(Visibility visibility, at::Device device) const;
  /// Dropout keys of the rows, [B] int64 on the CPU (or on the device of inputs().dropout_keys),
  /// derived from (seed, step, sample, site). If documents are samples: [B, T, 2] with each token's
  /// document key and its position in the document.
  Tensor dropout_keys(int64_t site) const;
  /// Numbers of this pass's tokens, [B, T] int64 on the CPU, derived from the sample and the
  /// position in the sequence; `places` [T] int64 are the positions.
  Tensor token_numbers(const Tensor& places) const;
  /// Returns the same pass over rows [R, 1, C], where each row is the token with this number:
  /// dropout draws the same mask for a token in any row.
  ForwardContext of_tokens(const Tensor& numbers) const;

 private:
  void check_source() const;
  void check_documents() const;
  /// Positions of the queries, [T], and of the keys, [S].
  std::pair<Tensor, Tensor> places(Visibility visibility, at::Device device) const;

  const model::ModelConfig& config_;
  ForwardInputs inputs_;
  int64_t length_, first_;
  std::shared_ptr<RotaryTables> rotary_;
  mutable std::map<std::tuple<Visibility, int, int>, Tensor> buckets_;
};

using Context = std::shared_ptr<const ForwardContext>;

}  // namespace lockstep::nn
