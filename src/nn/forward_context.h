// What a forward pass is given, and what its blocks share.
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

/// Cosines and sines of rotary positions: [T, d] float32, or [B, T, d] where positions are given; d
/// is rotary_dim / 2.
struct Rotary {
  Tensor cos, sin;
};
/// By device, and whether they are those of layers with a window.
using RotaryTables = std::map<std::tuple<int, int, bool>, Rotary>;

struct ForwardInputs {
  Tensor ids;       // [B, T] int64
  Targets targets;  // needed for scores and for a loss
  Tensor source;    // [B, S] int64: what the encoder of an encoder-decoder reads; ids are then what
                    // its decoder does, from decoder_start_token_id on
  Tensor source_mask;       // [B, S] bool: the tokens of the source that are none of padding;
                            // undefined: all. Of the whole source, where `source` is a part of it
  Tensor source_positions;  // [S] int64, where `source` is a part: where its tokens stand
  int64_t whole_source_length = 0;  // likewise: of the whole source
  Tensor samples;  // [B] int64, CPU: each row's number in the sampler's stream; needed for dropout
  Tensor token_samples;  // [B, T, 2] int64, CPU, of rows of several documents that are samples
                         // each: of each token its document's number, and its place there. Of the
                         // whole rows, where ids are a part of them. Undefined: a row is one sample
  uint64_t seed = 0;     // of dropout
  int64_t step = 0;      // likewise
  bool training = false;  // dropout acts
  /// Where the keys of dropouts lie, of this step and these samples; null: they are made for each.
  /// Not with token_samples.
  std::shared_ptr<DropoutKeys> dropout_keys;
  Tensor token_types;  // [B, T] int64, of encoders: the segment of each token; undefined: 0. Where
                       // ids are a part of the rows, so is it
  Tensor positions;  // [B, T] int64; undefined: they count from the length of the cache, or from 0
  /// [B, T] int64, of rows that hold several documents: where in its row the document of each token
  /// begins. A token sees those of its own document alone, and `positions` count from 0 in each. Of
  /// the whole rows, where `ids` are a part of them. Undefined: a row is one document. Of decoders
  /// alone, and without a cache.
  Tensor document_starts;
  ops::DocumentOffsets document_offsets;  // of the same rows, on their device: for GPUs, and where
                                          // this rank has whole rows
  /// [B, T] int64, of rows whose documents are trees of texts that begin alike: where in its row
  /// the last token that sees each token ends (ops::AttentionOptions::seen_until); `positions` are
  /// then those of each text. Of whole rows, and models that takes_trees() of. Undefined: every
  /// document is one text.
  Tensor seen_until;
  /// [B, T] bool: the tokens that are no padding; undefined: all. Of mixtures of experts alone,
  /// whose balance is that of these. Where ids are a part of the rows, so is it.
  Tensor real_tokens;
  std::shared_ptr<const RouterTerms> router_terms;  // of mixtures (nn/routing.h); null: none
  std::shared_ptr<RoutingLog> routing_log;          // likewise, to write to; null: nobody asks
  std::shared_ptr<const ExpertCapacity> expert_capacity;  // likewise (nn/expert_capacity.h); null:
                                                          // no token is dropped
  int64_t whole_length = 0;  // of the sequence, where ids are a part of it, or are padded; 0: T
  /// Made by the first of the passes that share them, which are of the same positions; null: each
  /// makes its own.
  std::shared_ptr<RotaryTables> rotary_tables;
  KeyValueCache* cache =
      nullptr;  // keys and values of the tokens before `ids`; those of `ids` are appended
};

/// Whether rows may hold trees of texts that begin alike: of decoders whose attention knows no
/// distances but by rotary positions that do not depend on a sequence's length.
bool takes_trees(const model::ModelConfig& config);

/// The site of a dropout, for its key: of its slot's role and layer, so that a model may have any
/// number of them and no two draw the same mask.
constexpr int64_t dropout_site(std::string_view role, int64_t layer) {
  return static_cast<int64_t>(derive_key(hash_name(role), static_cast<uint64_t>(layer)));
}

/// What a query may see among the tokens of its own sequence.
enum class Visibility { kCausal, kBoth };

/// The row of a table of relative positions for each distance of a key from its query (int64, any
/// shape; negative: the key is before it): of kBoth one half for either direction; in each, half of
/// the rows are a distance each, the others grow by a factor up to max_distance, and the last is
/// for all beyond it (Raffel et al., 2020, section 2.1).
Tensor relative_position_buckets(
    const Tensor& distance, Visibility visibility, const model::RelativePositions& positions);

/// Made once a forward pass, for a stage too; valid as long as the config.
class ForwardContext {
 public:
  /// Checks shapes and the model's position limit (Error kConfig).
  ForwardContext(const model::ModelConfig& config, ForwardInputs inputs);

  const ForwardInputs& inputs() const { return inputs_; }
  bool training() const { return inputs_.training; }
  KeyValueCache* cache() const { return inputs_.cache; }
  int64_t length() const { return length_; }         // T
  int64_t first_position() const { return first_; }  // of ids[:, 0], where positions are not given
  /// Of a layer, on that device; computed once for each device and kind of layer.
  const Rotary& rotary(at::Device device, int64_t layer) const;
  /// Whether this pass runs the encoder. Where not, its keys and values are in the cache.
  bool encodes() const;
  /// The tokens of the source that may be attended to, bool [B, 1, 1, S]; undefined: all.
  Tensor visible_source(at::Device device) const;
  /// [T, S] bool: the ids that each of the ids sees, itself and those before it; those in the cache
  /// included.
  Tensor visible_target(at::Device device) const;
  /// [T, S] int64: the row of a table of relative positions for each query and key. kBoth: of the
  /// source's tokens; kCausal: of the ids', those in the cache included. Where this rank holds a
  /// part of the sequence, the queries are its own, and the keys the whole sequence's.
  const Tensor& relative_buckets(Visibility visibility, at::Device device) const;
  /// The dropout keys of the rows, [B] int64 on the CPU, or where inputs().dropout_keys has them:
  /// of (seed, step, sample, site). Where documents are samples, [B, T, 2]: of each token its
  /// document's key, and its place there.
  Tensor dropout_keys(int64_t site) const;
  /// Of this pass's tokens: a number for each, [B, T] int64 on the CPU, by its sample and its place
  /// in the sequence, `places` [T] int64.
  Tensor token_numbers(const Tensor& places) const;
  /// The same pass over rows [R, 1, C], each of which is the token of this number: a dropout draws
  /// the same for a token, whatever row it is.
  ForwardContext of_tokens(const Tensor& numbers) const;

 private:
  void check_source() const;
  void check_documents() const;
  /// Of the queries, [T], and of the keys, [S], of either visibility.
  std::pair<Tensor, Tensor> places(Visibility visibility, at::Device device) const;

  const model::ModelConfig& config_;
  ForwardInputs inputs_;
  int64_t length_, first_;
  std::shared_ptr<RotaryTables> rotary_;
  mutable std::map<std::tuple<Visibility, int, int>, Tensor> buckets_;
};

using Context = std::shared_ptr<const ForwardContext>;

}  // namespace lockstep::nn
