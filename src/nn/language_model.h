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

/// A transformer block, identified by its index in the whole model.
class Block {
 public:
  explicit Block(int64_t layer) : layer_(layer) {}
  virtual ~Block() = default;
  int64_t layer() const { return layer_; }
  /// Maps the outputs of the previous unit to the inputs of the next unit.
  virtual Tensors forward(const Tensors& inputs, const ForwardContext& context) const = 0;
  virtual void visit_slots(const SlotFunction& visit) = 0;

 private:
  int64_t layer_;
};

using model::ModelPart;

/// The units of a model are the embedding, each block and the head. They run sequentially, and each
/// reads the tensors that the previous unit returns. In a decoder-only model this is one tensor,
/// the hidden states [B, T, C]. In an encoder-decoder these are four tensors: the target's hidden
/// states [B, T, C], updated by the decoder's blocks; the source's hidden states [B, S, C], updated
/// by the encoder's blocks and read by the decoder's; and the relative-position tables of encoder
/// and decoder. A unit returns tensors that it does not change, so that any contiguous range of
/// units can be a pipeline stage, and gradients flow back along the same path.
class LanguageModel {
 public:
  /// Runs a unit, which `body` implements. The default calls `body(inputs)`. Strategies that wrap
  /// units (gathering parameters, recomputing activations, moving to another device) install their
  /// own function. The embedding has no inputs.
  using UnitBody = std::function<Tensors(const Tensors& inputs)>;
  using UnitRunner =
      std::function<Tensors(int64_t unit, const Tensors& inputs, const UnitBody& body)>;

  /// Use make_model() to construct a model.
  LanguageModel(
      model::ModelConfig config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);
  virtual ~LanguageModel() = default;
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const model::ModelConfig& config() const { return config_; }
  const ModelPart& part() const { return part_; }

  /// Returns the SUM of -log p over the targets as a float32 scalar.
  Tensor loss(const ForwardInputs& inputs) const;
  /// Returns logits [B, T, V], or [B, T, classes] for a classifier, in the type of the weights.
  Tensor logits(const ForwardInputs& inputs) const;
  /// Returns the logits [B, V] of the last position.
  Tensor last_logits(const ForwardInputs& inputs) const;
  /// Returns the scores of the targets, [B, T] each, without gradients.
  Scores scores(const ForwardInputs& inputs) const;

  // The steps of a forward pass, for pipeline stages and for callers with their own loop. The units
  // of this stage run through `around_unit`. Throws Error (kInternal) if a required embedding or
  // head is missing.
  Context make_context(const ForwardInputs& inputs) const;
  Tensors embed(const Context& context) const;
  Tensors forward_blocks(const Tensors& inputs, const Context& context) const;
  /// Applies `body` to the input states of the head [B, T, C] and its weight [V, C]. A bias of the
  /// logits is appended as a column of the weight, with a matching column of ones in the states and
  /// zero columns as padding. `body` must keep the tensors that it reads alive.
  using HeadBody = std::function<Tensors(const Tensor& hidden, const Tensor& vocabulary)>;
  Tensors run_head(const Tensors& inputs, const Context& context, HeadBody body) const;

  /// Visits the slots in order of use.
  void visit_slots(const SlotFunction& visit);
  /// Visits every parameter once, by its Hugging Face name, in order of use. The function may
  /// replace the tensor (its storage, device or type). A tied head uses the embedding's tensor.
  void visit_parameters(const std::function<void(const std::string& name, Tensor&)>& function);
  /// Returns the parameter names by unit (embedding, each block, head) in order of use. A tied head
  /// also reads the embedding's weight, which is listed only under the embedding.
  std::vector<std::vector<std::string>> units();
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

  UnitRunner around_unit;
  /// Specifications of all parameters of the whole model, including other stages, by name. Code
  /// that adds parameters to a layer must add their specifications.
  std::map<std::string, model::ParameterSpec> specs;
  /// Specifications of all layers of the whole model, including other stages, by parameter prefix.
  std::map<std::string, model::LayerSpec> layers;

  /// Names of the parameters that a tied head also reads. Pipeline stages have copies of them.
  std::set<std::string> shared_with_head;
  /// Returns the adapter of the table that the head reads; null if it has none.
  const TableAdapter* adapter_of_head() const;

  // Slots outside the blocks. A slot is null if the family or this stage does not have it. A stage
  // with a tied head also has the token embedding.
  std::shared_ptr<TokenEmbedding> tokens;
  std::shared_ptr<PositionEmbedding> positions;
  std::shared_ptr<Dropout> embedding_dropout;
  std::shared_ptr<EmbeddingNoise> embedding_noise;  // of decoders and encoders, which have one
                                                    // sequence
  std::shared_ptr<Norm> final_norm;
  std::shared_ptr<RegionBoundary> head_input;
  std::shared_ptr<Head> head;
  std::shared_ptr<HeadBias> head_bias;

 protected:
  /// Return the output of the embedding unit, and the head unit's transformation of the hidden
  /// states before the vocabulary projection.
  virtual Tensors embedded(const ForwardContext& context) const;
  virtual Tensor head_states(const Tensor& x, const ForwardContext& context) const;
  /// Visit the slots of these two units, except tokens and head, which are visited before and after
  /// them.
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

/// Builds the model or a stage of it, with uninitialized parameters that require gradients.
/// Allocates no memory on a Meta device. Throws Error: kConfig (the stage does not exist),
/// kOutOfMemory.
std::unique_ptr<LanguageModel> make_model(
    const model::ModelConfig& config, at::ScalarType dtype, at::Device device, ModelPart part = {});

}  // namespace lockstep::nn
