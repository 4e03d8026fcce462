// GPT-2 (Radford et al., 2019).
#include <ATen/ATen.h>

#include "nn/activation.h"
#include "nn/families.h"
#include "ops/split_heads.h"

namespace lockstep::nn {
namespace {

class Gpt2Block final : public Block {
 public:
  Gpt2Block(const model::ModelConfig& config, int64_t layer)
      : Block(layer),
        layers_(config, layer),
        head_dim_(config.head_dim),
        activation_(config.activation),
        attention_norm_(layers_.norm("attention_norm")),
        mlp_norm_(layers_.norm("mlp_norm")),
        attention_input_(std::make_shared<RegionBoundary>()),
        mlp_input_(std::make_shared<RegionBoundary>()),
        query_key_value_(layers_.linear("query_key_value")),
        attention_out_(layers_.linear("attention_out")),
        mlp_up_(layers_.linear("mlp_up")),
        mlp_down_(layers_.linear("mlp_down")),
        attention_(make_attention(config, layer)),
        attention_dropout_(make_dropout(config.residual_dropout, "attention_dropout", layer)),
        mlp_dropout_(make_dropout(config.residual_dropout, "mlp_dropout", layer)) {}

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    const auto [x, normal_x] = attention_norm_->forward_beside(inputs.front());
    const auto [attended, normal] =
        mlp_norm_->add_forward(attention_dropout_->forward(attend(normal_x, context), context), x);
    const Tensor mlp_input = mlp_input_->forward(normal);
    const Tensor inner = activate(activation_, mlp_up_->forward(mlp_input, context));
    return {attended + mlp_dropout_->forward(mlp_down_->forward(inner, context), context)};
  }

  void visit_slots(const SlotFunction& visit) override {
    visit(layers_.name("attention_norm"), attention_norm_);
    visit(layers_.name("attention_input"), attention_input_);
    visit(layers_.name("query_key_value"), query_key_value_);
    visit(layers_.name("attention"), attention_);
    visit(layers_.name("attention_out"), attention_out_);
    visit(layers_.name("attention_dropout"), attention_dropout_);
    visit(layers_.name("mlp_norm"), mlp_norm_);
    visit(layers_.name("mlp_input"), mlp_input_);
    visit(layers_.name("mlp_up"), mlp_up_);
    visit(layers_.name("mlp_down"), mlp_down_);
    visit(layers_.name("mlp_dropout"), mlp_dropout_);
  }

 private:
  Tensor attend(const Tensor& normal, const ForwardContext& context) const {
    const Tensor packed =
        query_key_value_->forward(attention_input_->forward(normal), context);  // [B, T, 3 H D]
    const auto heads = ops::split_heads(packed, head_dim_);                     // 3 of [B, H, T, D]
    return attention_out_->forward(
        attention_->forward(heads[0], heads[1], heads[2], context), context);  // [B, T, C]
  }

  UnitLayers layers_;
  int64_t head_dim_;
  model::Activation activation_;
  std::shared_ptr<Norm> attention_norm_, mlp_norm_;
  std::shared_ptr<RegionBoundary> attention_input_, mlp_input_;
  std::shared_ptr<Linear> query_key_value_, attention_out_, mlp_up_, mlp_down_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace

std::shared_ptr<Block> make_gpt2_block(const model::ModelConfig& config, int64_t layer) {
  return std::make_shared<Gpt2Block>(config, layer);
}

}  // namespace lockstep::nn
