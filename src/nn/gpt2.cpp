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
        query_key_value_(std::make_shared<Linear>(WeightLayout::kInOut)),
        attention_out_(std::make_shared<Linear>(WeightLayout::kInOut)),
        mlp_up_(std::make_shared<Linear>(WeightLayout::kInOut)),
        mlp_down_(std::make_shared<Linear>(WeightLayout::kInOut)),
        attention_(make_attention(config, layer)),
        attention_dropout_(
            make_dropout(config.residual_dropout, DropoutSite::kAttentionOut, layer)),
        mlp_dropout_(make_dropout(config.residual_dropout, DropoutSite::kMlp, layer)) {}

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    const Tensor& x = inputs.front();
    const auto [attended, normal] =
        mlp_norm_->add_forward(attention_dropout_->forward(attend(x, context), context), x);
    const Tensor inner = activate(activation_, mlp_up_->forward(normal));
    return {attended + mlp_dropout_->forward(mlp_down_->forward(inner), context)};
  }

  void visit_slots(SlotVisitor& visitor) override {
    const auto name = [&](const char* role, const char* module = "") {
      return SlotName{role, layer(), prefix_ + module};
    };
    visitor.norm(name("attention_norm", "ln_1"), attention_norm_);
    visitor.linear(name("query_key_value", "attn.c_attn"), query_key_value_);
    visitor.attention(name("attention", "attn"), attention_);
    visitor.linear(name("attention_out", "attn.c_proj"), attention_out_);
    visitor.dropout(name("attention_dropout"), attention_dropout_);
    visitor.norm(name("mlp_norm", "ln_2"), mlp_norm_);
    visitor.linear(name("mlp_up", "mlp.c_fc"), mlp_up_);
    visitor.linear(name("mlp_down", "mlp.c_proj"), mlp_down_);
    visitor.dropout(name("mlp_dropout"), mlp_dropout_);
  }

 private:
  Tensor attend(const Tensor& x, const ForwardContext& context) const {
    const Tensor packed = query_key_value_->forward(attention_norm_->forward(x));  // [B, T, 3 H D]
    const auto heads = ops::split_heads(packed, head_dim_);  // 3 of [B, H, T, D]
    return attention_out_->forward(
        attention_->forward(heads[0], heads[1], heads[2], context));  // [B, T, C]
  }

  std::string prefix_;
  int64_t head_dim_;
  model::Activation activation_;
  std::shared_ptr<Norm> attention_norm_, mlp_norm_;
  std::shared_ptr<Linear> query_key_value_, attention_out_, mlp_up_, mlp_down_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace

std::shared_ptr<Block> make_gpt2_block(const model::ModelConfig& config, int64_t layer) {
  return std::make_shared<Gpt2Block>(config, layer);
}

}  // namespace lockstep::nn
