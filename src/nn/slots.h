// Slots: the named places of a model that strategies swap layers in.
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

/// Which slot: its role is the same in every layer, its prefix names its parameters.
/// Roles: tokens, positions, embedding_dropout; in a block attention_norm, attention_input (a
/// junction), query_key_value or query, key, value, query_norm and key_norm (where the family has
/// them), attention, attention_out, attention_out_norm (behind the sublayer: Gemma 2), then
/// attention_dropout, mlp_norm, mlp_input (a junction), mlp_gate_up or mlp_gate (where it is gated)
/// and mlp_up, mlp_down, or router, expert_exchange, expert_gate_up or expert_gate and expert_up,
/// and expert_down of each expert, shared_gate, shared_up, shared_down and shared_weight,
/// mlp_output (a junction, where the experts' outputs are added up); mlp_out_norm, mlp_dropout;
/// final_norm, head_input (a junction), head. An encoder-decoder also has source_tokens and
/// target_tokens (what stands beside the table for either), source_positions and target_positions
/// (its tables), target_embedding_dropout, final_dropout; in a block of its
/// decoder cross_norm, cross_input, cross_query, cross_key, cross_value, cross_attention,
/// cross_attention_out, cross_dropout; mlp_inner_dropout; in the last block of its encoder
/// encoder_norm, encoder_output (a junction) and encoder_dropout.
struct SlotName {
  std::string role;
  int64_t layer = -1;  // -1: outside the blocks
  std::string prefix;  // "transformer.h.0.attn.c_attn": what the names of its parameters begin with

  /// Hugging Face's name of a parameter of the layer: "transformer.h.0.attn.c_attn.weight".
  std::string parameter(const std::string& name) const { return prefix + "." + name; }
};

/// A place of a model with the layer that stands there, whatever its kind.
class Slot {
 public:
  template <class Kind>
  Slot(std::shared_ptr<Kind>& place)  // NOLINT(google-explicit-constructor): visitors are given it
      : place_(&place),
        kind_(&typeid(Kind)) {
    if constexpr (std::is_base_of_v<Layer, Kind>) {
      layer_ = place.get();
    }
  }
  /// Where layers of this kind stand here (Linear, Norm, Attention, ...: what the place is declared
  /// as), the place, in which another one may be put; else null.
  template <class Kind>
  std::shared_ptr<Kind>* as() const {
    return *kind_ == typeid(Kind) ? static_cast<std::shared_ptr<Kind>*>(place_) : nullptr;
  }
  /// Null where what stands here has no parameters.
  Layer* layer() const { return layer_; }

 private:
  void* place_;
  const std::type_info* kind_;
  Layer* layer_ = nullptr;
};

/// Sees slots, and may put other layers in them.
using SlotFunction = std::function<void(const SlotName&, const Slot&)>;

/// A SlotFunction that sees the slots of one kind: function(name, std::shared_ptr<Kind>&).
template <class Kind, class Function>
SlotFunction each(Function function) {
  return [function = std::move(function)](const SlotName& name, const Slot& slot) {
    if (std::shared_ptr<Kind>* place = slot.as<Kind>()) {
      function(name, *place);
    }
  };
}

/// One that sees what has parameters.
inline SlotFunction each_layer(std::function<void(const SlotName&, Layer&)> function) {
  return [function = std::move(function)](const SlotName& name, const Slot& slot) {
    if (slot.layer() != nullptr) {
      function(name, *slot.layer());
    }
  };
}

}  // namespace lockstep::nn
