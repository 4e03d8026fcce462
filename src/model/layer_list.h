// Builder used by model families to describe their layers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/description.h"

namespace lockstep::model {

/// Kind and size of a dim.
struct Extent {
  Dim dim;
  int64_t size;
};

/// Collects the layers of one unit. Each function appends a layer and returns it for further
/// changes.
class LayerList {
 public:
  static constexpr int64_t kOutsideBlocks = -1;
  LayerList(const ModelConfig& config, int64_t block, int64_t unit);

  const ModelConfig& config() const { return config_; }
  // Model dims.
  Extent hidden() const { return {Dim::kHidden, config_.hidden_size}; }
  Extent queries() const { return {Dim::kQueries, config_.heads * config_.head_dim}; }
  Extent key_values() const { return {Dim::kKeyValues, config_.kv_heads * config_.head_dim}; }
  Extent heads() const { return {Dim::kHeads, config_.heads}; }
  Extent head_dim() const { return {Dim::kHeadDim, config_.head_dim}; }
  /// Rows of the head: tokens or classes.
  Extent head_rows() const {
    return {config_.head.classifies() ? Dim::kClasses : Dim::kVocabulary, config_.head_rows()};
  }
  /// Dim of packed queries, keys and values.
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
  /// Adds a linear layer with an [out, in] weight, initialized with the config's standard
  /// deviation.
  LayerSpec& linear(
      std::string_view role, const std::string& prefix, Extent out, Extent in, Bias bias);
  /// Variant with an [in, out] weight.
  LayerSpec& linear_in_first(
      std::string_view role, const std::string& prefix, Extent in, Extent out, Bias bias);
  /// Adds a router [experts, hidden].
  LayerSpec& router(const std::string& prefix);
  /// Adds one bias per expert to the last added layer. Initialized like the weight.
  void router_bias();
  /// Adds one correction per expert to the last added layer, which must be a router. Corrections
  /// are added to the scores only to select experts. They are initialized to zero and not trained.
  void score_correction(const char* name);
  LayerSpec& attention_sinks(const std::string& prefix);
  /// Adds an RMS norm. `kind` is kRmsNorm or a variant with different rounding.
  LayerSpec& rms_norm(
      std::string_view role,
      const std::string& prefix,
      Extent over,
      LayerKind kind = LayerKind::kRmsNorm);
  LayerSpec& layer_norm(std::string_view role, const std::string& prefix, Extent over);
  /// Adds a token embedding [tokens, hidden]. `head` is the name of a tied head.
  LayerSpec& tokens(const std::string& prefix, std::string_view head = "lm_head");
  /// Adds a table with `rows` rows.
  LayerSpec& table(
      LayerKind kind,
      std::string_view role,
      const std::string& prefix,
      Extent rows,
      Extent columns);
  /// Adds the language modeling head or, under the name `classifier`, a classifier's head. Returns
  /// null if the head is tied.
  LayerSpec* head(const std::string& prefix, const std::string& classifier = "score");
  /// Adds a bias with one value per row of the head.
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

/// Sets the standard deviation used to initialize the layer's weight.
inline void set_deviation(LayerSpec& layer, double deviation) {
  layer.parameters.front().init.deviation = deviation;
}

}  // namespace lockstep::model
