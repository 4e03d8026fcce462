// How a family says what its models are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/description.h"

namespace lockstep::model {

/// A dim and its size.
struct Extent {
  Dim dim;
  int64_t size;
};

/// Collects the layers of one unit. Each function adds one, and returns it for what is unusual.
class LayerList {
 public:
  static constexpr int64_t kOutsideBlocks = -1;
  LayerList(const ModelConfig& config, int64_t block, int64_t unit);

  const ModelConfig& config() const { return config_; }
  // The sizes of the model.
  Extent hidden() const { return {Dim::kHidden, config_.hidden_size}; }
  Extent queries() const { return {Dim::kQueries, config_.heads * config_.head_dim}; }
  Extent key_values() const { return {Dim::kKeyValues, config_.kv_heads * config_.head_dim}; }
  Extent heads() const { return {Dim::kHeads, config_.heads}; }
  Extent head_dim() const { return {Dim::kHeadDim, config_.head_dim}; }
  /// Tokens, or classes.
  Extent head_rows() const {
    return {config_.head.classifies() ? Dim::kClasses : Dim::kVocabulary, config_.head_rows()};
  }
  /// Of queries, keys and values in one product.
  Extent packed_heads() const {
    return {Dim::kPackedHeads, (config_.heads + 2 * config_.kv_heads) * config_.head_dim};
  }
  Extent width() const { return {Dim::kWidth, config_.intermediate_size}; }
  Extent experts() const { return {Dim::kExperts, config_.experts.count}; }
  Extent expert_width() const { return {Dim::kExpertWidth, config_.experts.width}; }
  Extent shared_width() const { return {Dim::kSharedWidth, config_.experts.shared_width}; }
  Extent gate_pairs() const { return {Dim::kGatePairs, 2 * config_.experts.width}; }
  Extent gated_width() const { return {Dim::kGatedWidth, 2 * config_.intermediate_size}; }

  enum class Bias : bool { kNone, kZeros };
  /// A weight [out, in] that is drawn with the config's deviation.
  LayerSpec& linear(
      std::string_view role, const std::string& prefix, Extent out, Extent in, Bias bias);
  /// The same as [in, out].
  LayerSpec& linear_in_first(
      std::string_view role, const std::string& prefix, Extent in, Extent out, Bias bias);
  /// A row of hidden numbers for each expert.
  LayerSpec& router(const std::string& prefix);
  /// A number for each expert that is drawn as the rows are, in the layer that was added last.
  void router_bias();
  /// A number for each expert, in the layer that was added last, a router's: added to its scores
  /// where they are compared, and there alone. It begins at zero and does not learn.
  void score_correction(const char* name);
  LayerSpec& attention_sinks(const std::string& prefix);
  /// `kind`: kRmsNorm, or one of those that round otherwise.
  LayerSpec& rms_norm(
      std::string_view role,
      const std::string& prefix,
      Extent over,
      LayerKind kind = LayerKind::kRmsNorm);
  LayerSpec& layer_norm(std::string_view role, const std::string& prefix, Extent over);
  /// A row of hidden numbers for each token; `head` is the name of a head that is tied to it.
  LayerSpec& tokens(const std::string& prefix, std::string_view head = "lm_head");
  /// A row of the table for each of `rows`.
  LayerSpec& table(
      LayerKind kind,
      std::string_view role,
      const std::string& prefix,
      Extent rows,
      Extent columns);
  /// The language model's head under its name, a classifier's under another; null where it is tied.
  LayerSpec* head(const std::string& prefix, const std::string& classifier = "score");
  /// A number for each of the head's rows.
  LayerSpec& head_bias(const std::string& prefix);

  std::vector<LayerSpec>& layers() { return layers_; }
  std::vector<LayerSpec> take() { return std::move(layers_); }

 private:
  LayerSpec& add(LayerKind kind, std::string_view role, const std::string& prefix);
  void add_weight(LayerSpec& layer, Extent rows, Extent columns) const;
  void add_vector(LayerSpec& layer, const char* name, Extent size, Initialization::Kind kind) const;

  const ModelConfig& config_;
  int64_t block_, unit_;
  std::vector<LayerSpec> layers_;
};

/// Draws the layer's weight with another deviation.
inline void set_deviation(LayerSpec& layer, double deviation) {
  layer.parameters.front().init.deviation = deviation;
}

}  // namespace lockstep::model
