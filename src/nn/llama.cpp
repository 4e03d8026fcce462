// Llama (Touvron et al., 2023), and with it Mistral, Qwen2 and Qwen3, which differ by options.
#include <ATen/ATen.h>

#include "nn/activation.h"
#include "nn/families.h"
#include "ops/rope.h"

namespace lockstep::nn {
namespace {

class LlamaBlock final : public Block {
 public:
  LlamaBlock(const model::ModelConfig& config, int64_t layer)
      : Block(layer),
        layers_(config, layer),
        head_dim_(config.head_dim),
        activation_(config.activation),
        attention_norm_(layers_.norm("attention_norm")),
        mlp_norm_(layers_.norm("mlp_norm")),
        query_norm_(layers_.norm("query_norm")),
        key_norm_(layers_.norm("key_norm")),
        attention_input_(std::make_shared<Junction>()),
        mlp_input_(std::make_shared<Junction>()),
        query_(layers_.linear("query")),
        key_(layers_.linear("key")),
        value_(layers_.linear("value")),
        attention_out_(layers_.linear("attention_out")),
        mlp_gate_(layers_.linear("mlp_gate")),
        mlp_up_(layers_.linear("mlp_up")),
        mlp_down_(layers_.linear("mlp_down")),
        attention_(make_attention(config, layer)),
        attention_dropout_(make_dropout(config.residual_dropout, "attention_dropout", layer)),
        mlp_dropout_(make_dropout(config.residual_dropout, "mlp_dropout", layer)) {}

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    const Tensor& x = inputs.front();
    const auto [attended, normal] =
        mlp_norm_->add_forward(attention_dropout_->forward(attend(x, context), context), x);
    const Tensor mlp_input = mlp_input_->forward(normal);
    const Tensor inner = activate_gate(
        activation_, mlp_gate_->forward(mlp_input, context), mlp_up_->forward(mlp_input, context));
    return {attended + mlp_dropout_->forward(mlp_down_->forward(inner, context), context)};
  }

  void visit_slots(const SlotFunction& visit) override {
    visit(layers_.name("attention_norm"), attention_norm_);
    visit(layers_.name("attention_input"), attention_input_);
    visit(layers_.name("query"), query_);
    visit(layers_.name("key"), key_);
    visit(layers_.name("value"), value_);
    if (query_norm_ != nullptr) {
      visit(layers_.name("query_norm"), query_norm_);
      visit(layers_.name("key_norm"), key_norm_);
    }
    visit(layers_.name("attention"), attention_);
    visit(layers_.name("attention_out"), attention_out_);
    visit(layers_.name("attention_dropout"), attention_dropout_);
    visit(layers_.name("mlp_norm"), mlp_norm_);
    visit(layers_.name("mlp_input"), mlp_input_);
    visit(layers_.name("mlp_gate"), mlp_gate_);
    visit(layers_.name("mlp_up"), mlp_up_);
    visit(layers_.name("mlp_down"), mlp_down_);
    visit(layers_.name("mlp_dropout"), mlp_dropout_);
  }

 private:
  Tensor attend(const Tensor& x, const ForwardContext& context) const {
    const Tensor normal = attention_input_->forward(attention_norm_->forward(x));
    const Rotary& rotary = context.rotary(x.device());
    const auto heads = [&](const Linear& linear) {
      return linear.forward(normal, context).unflatten(-1, {-1, head_dim_});  // [B, T, H, D]
    };
    const auto rotated = [&](const Linear& linear, const std::shared_ptr<Norm>& norm) {
      const Tensor x = norm == nullptr ? heads(linear) : norm->forward(heads(linear));
      return ops::rotate(x, rotary.cos, rotary.sin).transpose(1, 2);  // [B, H, T, D]
    };
    return attention_out_->forward(
        attention_->forward(
            rotated(*query_, query_norm_),
            rotated(*key_, key_norm_),
            heads(*value_).transpose(1, 2),
            context),
        context);  // [B, T, C]
  }

  UnitLayers layers_;
  int64_t head_dim_;
  model::Activation activation_;
  std::shared_ptr<Norm> attention_norm_, mlp_norm_;
  std::shared_ptr<Norm> query_norm_, key_norm_;  // of each head; null: the family has none
  std::shared_ptr<Junction> attention_input_, mlp_input_;
  std::shared_ptr<Linear> query_, key_, value_, attention_out_, mlp_gate_, mlp_up_, mlp_down_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace

std::shared_ptr<Block> make_llama_block(const model::ModelConfig& config, int64_t layer) {
  return std::make_shared<LlamaBlock>(config, layer);
}

}  // namespace lockstep::nn
