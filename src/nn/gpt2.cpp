// GPT-2 (Radford et al., 2019).
#include <ATen/ATen.h>

#include "model/parameters.h"
#include "nn/activation.h"
#include "nn/families.h"
#include "ops/split_heads.h"

namespace lockstep::nn {
namespace {

class Gpt2Block final : public Block {
 public:
  Gpt2Block(const model::ModelConfig& config, int64_t layer)
      : Block(layer),
        prefix_(model::layer_prefix(config, layer)),
        head_dim_(config.head_dim),
        activation_(config.activation),
        attention_norm_(std::make_shared<Norm>(NormKind::kLayerNorm, config.norm_eps)),
        mlp_norm_(std::make_shared<Norm>(NormKind::kLayerNorm, config.norm_eps)),
        attention_input_(std::make_shared<Junction>()),
        mlp_input_(std::make_shared<Junction>()),
        query_key_value_(std::make_shared<Linear>(WeightLayout::kInOut)),
        attention_out_(std::make_shared<Linear>(WeightLayout::kInOut)),
        mlp_up_(std::make_shared<Linear>(WeightLayout::kInOut)),
        mlp_down_(std::make_shared<Linear>(WeightLayout::kInOut)),
        attention_(make_attention(config, layer)),
        attention_dropout_(make_dropout(config.residual_dropout, "attention_dropout", layer)),
        mlp_dropout_(make_dropout(config.residual_dropout, "mlp_dropout", layer)) {}

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    const Tensor& x = inputs.front();
    const auto [attended, normal] =
        mlp_norm_->add_forward(attention_dropout_->forward(attend(x, context), context), x);
    const Tensor mlp_input = mlp_input_->forward(normal);
    const Tensor inner = activate(activation_, mlp_up_->forward(mlp_input));
    return {attended + mlp_dropout_->forward(mlp_down_->forward(inner), context)};
  }

  void visit_slots(const SlotFunction& visit) override {
    const auto name = [&](const char* role, const char* module = "") {
      return SlotName{role, layer(), prefix_ + module};
    };
    visit(name("attention_norm", "ln_1"), attention_norm_);
    visit(name("attention_input"), attention_input_);
    visit(name("query_key_value", "attn.c_attn"), query_key_value_);
    visit(name("attention", "attn"), attention_);
    visit(name("attention_out", "attn.c_proj"), attention_out_);
    visit(name("attention_dropout"), attention_dropout_);
    visit(name("mlp_norm", "ln_2"), mlp_norm_);
    visit(name("mlp_input"), mlp_input_);
    visit(name("mlp_up", "mlp.c_fc"), mlp_up_);
    visit(name("mlp_down", "mlp.c_proj"), mlp_down_);
    visit(name("mlp_dropout"), mlp_dropout_);
  }

 private:
  Tensor attend(const Tensor& x, const ForwardContext& context) const {
    const Tensor packed = query_key_value_->forward(
        attention_input_->forward(attention_norm_->forward(x)));  // [B, T, 3 H D]
    const auto heads = ops::split_heads(packed, head_dim_);       // 3 of [B, H, T, D]
    return attention_out_->forward(
        attention_->forward(heads[0], heads[1], heads[2], context));  // [B, T, C]
  }

  std::string prefix_;
  int64_t head_dim_;
  model::Activation activation_;
  std::shared_ptr<Norm> attention_norm_, mlp_norm_;
  std::shared_ptr<Junction> attention_input_, mlp_input_;
  std::shared_ptr<Linear> query_key_value_, attention_out_, mlp_up_, mlp_down_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace

std::shared_ptr<Block> make_gpt2_block(const model::ModelConfig& config, int64_t layer) {
  return std::make_shared<Gpt2Block>(config, layer);
}

}  // namespace lockstep::nn
