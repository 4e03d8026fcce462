// Slots: the named places of a model that strategies swap layers in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "nn/layers.h"

namespace lockstep::nn {

/// Which slot: its role is the same in every layer, its prefix names its parameters.
/// Roles: tokens, positions, embedding_dropout; in a block attention_norm, query_key_value (GPT-2)
/// or query, key, value, attention, attention_out, attention_dropout, mlp_norm, mlp_gate (not
/// GPT-2), mlp_up, mlp_down, mlp_dropout; final_norm, loss_head. An encoder-decoder also has
/// source_positions and target_positions (its tables), target_embedding_dropout, final_dropout; in
/// a block of its decoder cross_norm, cross_query, cross_key, cross_value, cross_attention,
/// cross_attention_out, cross_dropout; mlp_inner_dropout; in the last block of its encoder
/// encoder_norm and encoder_dropout.
struct SlotName {
  std::string role;
  int64_t layer = -1;  // -1: outside the blocks
  std::string prefix;  // "transformer.h.0.attn.c_attn": what the names of its parameters begin with

  /// Hugging Face's name of a parameter of the layer: "transformer.h.0.attn.c_attn.weight".
  std::string parameter(const std::string& name) const { return prefix + "." + name; }
};

/// Sees each slot, and may put another layer in it. A function that is not overridden passes by.
class SlotVisitor {
 public:
  virtual ~SlotVisitor() = default;
  virtual void linear(const SlotName&, std::shared_ptr<Linear>&) {}
  virtual void norm(const SlotName&, std::shared_ptr<Norm>&) {}
  virtual void tokens(const SlotName&, std::shared_ptr<TokenEmbedding>&) {}
  virtual void positions(const SlotName&, std::shared_ptr<PositionEmbedding>&) {}
  virtual void attention(const SlotName&, std::shared_ptr<Attention>&) {}
  virtual void relative_positions(const SlotName&, std::shared_ptr<RelativePositionTable>&) {}
  virtual void biased_attention(const SlotName&, std::shared_ptr<BiasedAttention>&) {}
  virtual void dropout(const SlotName&, std::shared_ptr<Dropout>&) {}
  virtual void loss_head(const SlotName&, std::shared_ptr<LossHead>&) {}
};

/// A visitor that calls one function with every layer that may hold parameters.
class LayerVisitor final : public SlotVisitor {
 public:
  using Function = std::function<void(const SlotName&, Layer&)>;
  explicit LayerVisitor(Function function) : function_(std::move(function)) {}
  void linear(const SlotName& name, std::shared_ptr<Linear>& slot) override {
    function_(name, *slot);
  }
  void norm(const SlotName& name, std::shared_ptr<Norm>& slot) override { function_(name, *slot); }
  void tokens(const SlotName& name, std::shared_ptr<TokenEmbedding>& slot) override {
    function_(name, *slot);
  }
  void positions(const SlotName& name, std::shared_ptr<PositionEmbedding>& slot) override {
    function_(name, *slot);
  }
  void relative_positions(
      const SlotName& name, std::shared_ptr<RelativePositionTable>& slot) override {
    function_(name, *slot);
  }
  void loss_head(const SlotName& name, std::shared_ptr<LossHead>& slot) override {
    function_(name, *slot);
  }

 private:
  Function function_;
};

}  // namespace lockstep::nn
