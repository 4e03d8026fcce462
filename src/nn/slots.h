// Slots: named positions in a model, whose layers parallelism strategies replace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "nn/layers.h"

namespace lockstep::nn {

/// Identifies a slot. The role is the same in every layer; the prefix identifies the parameters.
///
/// Roles outside the blocks: tokens, embedding_noise, positions, embedding_dropout; final_norm,
/// head_input (a region boundary), head.
///
/// Roles in a block: attention_norm, attention_input (a region boundary), query_key_value or query,
/// key, value; query_norm and key_norm (if the family has them), attention, attention_out,
/// attention_out_norm (norm of the sublayer's output: Gemma 2), attention_dropout; mlp_norm,
/// mlp_input (a region boundary), mlp_gate_up or mlp_gate (if gated) and mlp_up, mlp_down; or
/// router, expert_exchange, expert_gate_up or expert_gate and expert_up, and expert_down of each
/// expert, shared_gate, shared_up, shared_down and shared_weight, mlp_output (a region boundary,
/// where the experts' outputs are summed); mlp_out_norm, mlp_dropout.
///
/// An encoder-decoder also has source_tokens and target_tokens (adapters of the shared table for
/// either sequence), source_positions and target_positions (relative-position tables),
/// target_embedding_dropout and final_dropout. Each of its blocks has mlp_inner_dropout. A decoder
/// block has cross_norm, cross_input, cross_query, cross_key, cross_value, cross_attention,
/// cross_attention_out, cross_dropout. The last encoder block has encoder_norm, encoder_output (a
/// region boundary) and encoder_dropout.
struct SlotName {
  std::string role;
  int64_t layer = -1;  // -1: outside the blocks
  std::string prefix;  // prefix of the layer's parameter names: "transformer.h.0.attn.c_attn"

  /// Returns the Hugging Face name of a parameter of the layer:
  /// "transformer.h.0.attn.c_attn.weight".
  std::string parameter(const std::string& name) const { return prefix + "." + name; }
};

/// Type-erased reference to a slot and the layer in it.
class Slot {
 public:
  template <class Kind>
  Slot(std::shared_ptr<Kind>& place)  // NOLINT(google-explicit-constructor): for visitors
      : place_(&place),
        kind_(&typeid(Kind)) {
    if constexpr (std::is_base_of_v<Layer, Kind>) {
      layer_ = place.get();
    }
  }
  /// Returns the slot if it is declared with this type of layer (Linear, Norm, Attention, ...), so
  /// that its layer can be replaced. Returns null otherwise.
  template <class Kind>
  std::shared_ptr<Kind>* as() const {
    return *kind_ == typeid(Kind) ? static_cast<std::shared_ptr<Kind>*>(place_) : nullptr;
  }
  /// Returns null if the slot's layer has no parameters.
  Layer* layer() const { return layer_; }

 private:
  void* place_;
  const std::type_info* kind_;
  Layer* layer_ = nullptr;
};

/// Visits slots and may replace their layers.
using SlotFunction = std::function<void(const SlotName&, const Slot&)>;

/// Returns a SlotFunction that visits the slots of one type: function(name,
/// std::shared_ptr<Kind>&).
template <class Kind, class Function>
SlotFunction each(Function function) {
  return [function = std::move(function)](const SlotName& name, const Slot& slot) {
    if (std::shared_ptr<Kind>* place = slot.as<Kind>()) {
      function(name, *place);
    }
  };
}

/// Returns a SlotFunction that visits the layers with parameters.
inline SlotFunction each_layer(std::function<void(const SlotName&, Layer&)> function) {
  return [function = std::move(function)](const SlotName& name, const Slot& slot) {
    if (slot.layer() != nullptr) {
      function(name, *slot.layer());
    }
  };
}

}  // namespace lockstep::nn
