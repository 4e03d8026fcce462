// Transformer language model without parallelism: embedding, blocks and head.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/description.h"
#include "model/model_config.h"
#include "model/split.h"
#include "nn/forward_context.h"
#include "nn/layers.h"
#include "nn/slots.h"
#include "nn/unit_layers.h"

namespace lockstep::nn {

/// One layer of the model, keyed by its index in the whole model.
class Block {
 public:
  explicit Block(int64_t layer) : layer_(layer) {}
  virtual ~Block() = default;
  int64_t layer() const { return layer_; }
  /// Maps the outputs of the previous unit to the inputs of the next one.
  virtual Tensors forward(const Tensors& inputs, const ForwardContext& context) const = 0;
  virtual void visit_slots(const SlotFunction& visit) = 0;

 private:
  int64_t layer_;
};

using model::ModelPart;

/// The units are the embedding, each block and the head. They run sequentially, and each reads the
/// tensors that the previous one returns. A decoder-only model passes one tensor, the hidden states
/// [B, T, C]. An encoder-decoder passes four: the target's hidden states [B, T, C], updated by the
/// decoder's blocks; the source's [B, S, C], updated by the encoder's blocks and read by the
/// decoder's; and the tables of relative positions of encoder and decoder. A unit passes on the
/// tensors that it does not change, so any contiguous range of units can be a pipeline stage, and
/// gradients flow back along the same path.
class LanguageModel {
 public:
  /// Runs a unit: `body` is the unit, from inputs to outputs. The default calls it. Strategies that
  /// wrap units (gathering parameters, recomputing activations, moving to another device) install
  /// their own function. The embedding has no inputs.
  using UnitBody = std::function<Tensors(const Tensors& inputs)>;
  using UnitRunner =
      std::function<Tensors(int64_t unit, const Tensors& inputs, const UnitBody& body)>;

  /// Use make_model() instead.
  LanguageModel(
      model::ModelConfig config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);
  virtual ~LanguageModel() = default;
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const model::ModelConfig& config() const { return config_; }
  const ModelPart& part() const { return part_; }

  /// Returns the SUM of -log p over the targets, a float32 scalar.
  Tensor loss(const ForwardInputs& inputs) const;
  /// Returns logits [B, T, V], for a classifier [B, T, classes], in the type of the weights.
  Tensor logits(const ForwardInputs& inputs) const;
  /// Logits [B, V] of the last position.
  Tensor last_logits(const ForwardInputs& inputs) const;
  /// Returns the scores of the targets, [B, T] each. No gradient.
  Scores scores(const ForwardInputs& inputs) const;

  // The steps of forward(), for stages of the model and for callers with their own loop. Units of
  // this stage run through `around_unit`. Throws Error (kInternal) if a required embedding or head
  // is missing.
  Context make_context(const ForwardInputs& inputs) const;
  Tensors embed(const Context& context) const;
  Tensors forward_blocks(const Tensors& inputs, const Context& context) const;
  /// Applies `body` to the head's input states [B, T, C] and its weight [V, C]. A bias of the
  /// logits is appended as a column of the weight, with a matching column of ones in the states and
  /// zero columns as padding. `body` keeps the tensors that it reads alive.
  using HeadBody = std::function<Tensors(const Tensor& hidden, const Tensor& vocabulary)>;
  Tensors run_head(const Tensors& inputs, const Context& context, HeadBody body) const;

  /// Visits the slots in the order of use.
  void visit_slots(const SlotFunction& visit);
  /// Visits every parameter once, under Hugging Face's name, in the order of use. The function may
  /// replace the tensor (its storage, device or type); a tied head follows the embedding.
  void visit_parameters(const std::function<void(const std::string& name, Tensor&)>& function);
  /// Parameter names by unit (embedding, each block, head) in order of use. A tied head also reads
  /// the embedding's weight, which is listed only in the embedding's unit.
  std::vector<std::vector<std::string>> units();
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

  UnitRunner around_unit;
  /// Specifications of the whole model's parameters by name, including those of other stages. Code
  /// that adds parameters to a layer must add them here.
  std::map<std::string, model::ParameterSpec> specs;
  /// Specifications of the whole model's layers by parameter prefix, including those of other
  /// stages.
  std::map<std::string, model::LayerSpec> layers;

  /// Names of parameters that a tied head also reads; pipeline stages have copies of them.
  std::set<std::string> shared_with_head;
  /// Adapter of the table that the head reads; null if it has none.
  const TableAdapter* adapter_of_head() const;

  // Slots outside the blocks. Slots that the family or this stage does not have are null. A stage
  // with a tied head also has the token embedding.
  std::shared_ptr<TokenEmbedding> tokens;
  std::shared_ptr<PositionEmbedding> positions;
  std::shared_ptr<Dropout> embedding_dropout;
  std::shared_ptr<Norm> final_norm;
  std::shared_ptr<RegionBoundary> head_input;
  std::shared_ptr<Head> head;
  std::shared_ptr<HeadBias> head_bias;

 protected:
  /// Output of the embedding unit, and the head unit's transformation of the hidden states before
  /// the vocabulary projection.
  virtual Tensors embedded(const ForwardContext& context) const;
  virtual Tensor head_states(const Tensor& x, const ForwardContext& context) const;
  /// Visits the slots of these two units except tokens and head, which are visited before and
  /// after.
  virtual void visit_embedding(const SlotFunction& visit);
  virtual void visit_head(const SlotFunction& visit);

  const model::ModelConfig config_;
  const ModelPart part_;
  const UnitLayers embedding_layers_, head_layers_;

 private:
  std::string head_prefix() const;
  bool holds_table() const;
  /// Runs the embedding and the blocks.
  Tensors hidden(const Context& context) const;

  std::vector<std::shared_ptr<Block>> blocks_;
};

/// Builds the model, or a stage of it, with uninitialized parameters that require gradients. On a
/// Meta device nothing is allocated. Throws Error: kConfig (a stage that does not exist),
/// kOutOfMemory.
std::unique_ptr<LanguageModel> make_model(
    const model::ModelConfig& config, at::ScalarType dtype, at::Device device, ModelPart part = {});

}  // namespace lockstep::nn
