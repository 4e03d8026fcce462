// Encoder-only models (Devlin et al., "BERT", 2019): embedding and head around the blocks.
#include <ATen/ATen.h>

#include "model/encoder_head.h"
#include "nn/activation.h"
#include "nn/families.h"

namespace lockstep::nn {
namespace {

class Encoder final : public LanguageModel {
 public:
  Encoder(
      const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks)
      : LanguageModel(config, part, std::move(blocks)),
        form_(model::encoder_head(config)) {
    if (part.embedding) {
      norm_ = embedding_layers_.norm("embedding_norm");
      if (embedding_layers_.find("token_types") != nullptr) {
        token_types_ = std::make_shared<PositionEmbedding>();
      }
    }
    if (part.head) {
      before_ = make_dropout(form_.dropout_before, "head_input_dropout", -1);
      dense_ = head_layers_.linear("head_dense");
      head_norm_ = head_layers_.norm("head_norm");
      after_ = make_dropout(form_.dropout_after, "head_dropout", -1);
    }
  }

 protected:
  Tensors embedded(const ForwardContext& context) const override {
    const ForwardInputs& inputs = context.inputs();
    const int64_t first = config().first_position;
    const Tensor places = inputs.positions.defined() ? inputs.positions + first : Tensor();
    Tensor x = embedding_noise->forward(tokens->forward(inputs.ids), context) +
               positions->forward(places, first + context.first_position(), context.length());
    if (token_types_ != nullptr) {
      const Tensor& given = inputs.token_types;
      x = x + token_types_->forward(
                  given.defined() ? given : at::zeros_like(inputs.ids), 0, context.length());
    }
    return {embedding_dropout->forward(norm_->forward(x), context)};
  }
  Tensor head_states(const Tensor& x, const ForwardContext& context) const override {
    const Tensor inner =
        activate(form_.activation, dense_->forward(before_->forward(x, context), context));
    const Tensor normal = head_norm_ == nullptr ? inner : head_norm_->forward(inner);
    return head_input->forward(after_->forward(normal, context));
  }
  void visit_embedding(const SlotFunction& visit) override {
    const UnitLayers& layers = embedding_layers_;
    visit(layers.name("embedding_noise"), embedding_noise);
    visit(layers.name("positions"), positions);
    if (token_types_ != nullptr) {
      visit(layers.name("token_types"), token_types_);
    }
    visit(layers.name("embedding_norm"), norm_);
    visit(layers.name("embedding_dropout"), embedding_dropout);
  }
  void visit_head(const SlotFunction& visit) override {
    const UnitLayers& layers = head_layers_;
    visit(layers.name("head_input_dropout"), before_);
    visit(layers.name("head_dense"), dense_);
    if (head_norm_ != nullptr) {
      visit(layers.name("head_norm"), head_norm_);
    }
    visit(layers.name("head_dropout"), after_);
    visit(layers.name("head_input"), head_input);
  }

 private:
  model::EncoderHead form_;
  std::shared_ptr<PositionEmbedding> token_types_;  // null if the family has no token types
  std::shared_ptr<Norm> norm_, head_norm_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<Dropout> before_, after_;
};

}  // namespace

std::unique_ptr<LanguageModel> make_encoder(
    const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks) {
  return std::make_unique<Encoder>(config, part, std::move(blocks));
}

}  // namespace lockstep::nn
