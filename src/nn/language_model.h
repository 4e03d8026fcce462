// A transformer with a head, plain: embedding, blocks, head. It knows nothing of
// ranks.
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
  /// What the unit before gave -> what the next one takes.
  virtual Tensors forward(const Tensors& inputs, const ForwardContext& context) const = 0;
  virtual void visit_slots(const SlotFunction& visit) = 0;

 private:
  int64_t layer_;
};

using model::ModelPart;

/// Units are the embedding, each block and the head, and run one after the other, each from the
/// tensors that the one before gave. In a decoder-only model that is one, the hidden states
/// [B, T, C]. In an encoder-decoder it is four: the target's hidden states [B, T, C], which the
/// decoder's blocks change; the source's [B, S, C], which the encoder's blocks change and the
/// decoder's read; and the tables of relative positions of either. What a unit does not change, it
/// passes on: so any run of units is a stage of a pipeline, and gradients come back by the same
/// way.
class LanguageModel {
 public:
  /// Runs a unit: `body` is the unit, from what it takes to what it gives. The default calls it.
  /// Strategies that act around units (gathering parameters, recomputing, moving to another device)
  /// put their own here. The embedding takes nothing.
  using UnitBody = std::function<Tensors(const Tensors& inputs)>;
  using UnitRunner =
      std::function<Tensors(int64_t unit, const Tensors& inputs, const UnitBody& body)>;

  /// Use make_model.
  LanguageModel(
      model::ModelConfig config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);
  virtual ~LanguageModel() = default;
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const model::ModelConfig& config() const { return config_; }
  const ModelPart& part() const { return part_; }

  /// The SUM of -log p over the targets, a float32 scalar.
  Tensor loss(const ForwardInputs& inputs) const;
  /// [B, T, V], of a classifier [B, T, classes]; in the type of the weights.
  Tensor logits(const ForwardInputs& inputs) const;
  /// [B, V] of the last position alone.
  Tensor last_logits(const ForwardInputs& inputs) const;
  /// Of the targets, [B, T] each. No gradient.
  Scores scores(const ForwardInputs& inputs) const;

  // The same in pieces, for a part of the model and for owners of the loop. Units of this part are
  // run through `around_unit`; a missing embedding or head is an Error (kInternal).
  Context make_context(const ForwardInputs& inputs) const;
  Tensors embed(const Context& context) const;
  Tensors forward_blocks(const Tensors& inputs, const Context& context) const;
  /// What `body`, which keeps what it reads alive, makes of the states [B, T, C] that the head
  /// reads, and of its weight [V, C]. A bias of the logits is a column of the weight, for which the
  /// states have a one: then there are more of them, some of zeros.
  using HeadBody = std::function<Tensors(const Tensor& hidden, const Tensor& vocabulary)>;
  Tensors run_head(const Tensors& inputs, const Context& context, HeadBody body) const;

  /// Slots in the order of use.
  void visit_slots(const SlotFunction& visit);
  /// Every parameter once, by Hugging Face's name, in the order of use. The function may replace
  /// the tensor (its storage, device or type); a tied head follows the embedding.
  void visit_parameters(const std::function<void(const std::string& name, Tensor&)>& function);
  /// The names of the parameters by unit: embedding, each block, head; in the order of use. A tied
  /// head also reads the embedding's weight, which is listed in the embedding's unit alone.
  std::vector<std::vector<std::string>> units();
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

  UnitRunner around_unit;
  /// What the model's parameters are, by name, those of other parts too. Who adds parameters to a
  /// layer adds them here.
  std::map<std::string, model::ParameterSpec> specs;
  /// What its layers are, by the prefix of their parameters' names, those of other parts too.
  std::map<std::string, model::LayerSpec> layers;

  /// The names of parameters that a tied head reads too: stages of a pipeline have copies of them.
  std::set<std::string> shared_with_head;
  /// What stands beside the table that the head reads; null: nothing.
  const TableAdapter* adapter_of_head() const;

  // The slots outside the blocks. Absent ones (by family or part) are null. A part that has a tied
  // head has the tokens too.
  std::shared_ptr<TokenEmbedding> tokens;
  std::shared_ptr<PositionEmbedding> positions;
  std::shared_ptr<Dropout> embedding_dropout;
  std::shared_ptr<Norm> final_norm;
  std::shared_ptr<RegionBoundary> head_input;
  std::shared_ptr<Head> head;
  std::shared_ptr<HeadBias> head_bias;

 protected:
  /// The embedding's unit, and what the head's makes of the hidden states before the product with
  /// the vocabulary.
  virtual Tensors embedded(const ForwardContext& context) const;
  virtual Tensor head_states(const Tensor& x, const ForwardContext& context) const;
  /// The slots of these two units but for tokens and head, which come before and after them.
  virtual void visit_embedding(const SlotFunction& visit);
  virtual void visit_head(const SlotFunction& visit);

  const model::ModelConfig config_;
  const ModelPart part_;
  const UnitLayers embedding_layers_, head_layers_;

 private:
  std::string head_prefix() const;
  bool holds_table() const;
  /// Runs embedding and blocks.
  Tensors hidden(const Context& context) const;

  std::vector<std::shared_ptr<Block>> blocks_;
};

/// Builds the model, or a part of it, with uninitialised parameters that require gradients. A
/// device of type Meta allocates nothing. Throws Error: kConfig (a part that does not exist),
/// kOutOfMemory.
std::unique_ptr<LanguageModel> make_model(
    const model::ModelConfig& config, at::ScalarType dtype, at::Device device, ModelPart part = {});

}  // namespace lockstep::nn
