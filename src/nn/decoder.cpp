// Decoder block of Llama (Touvron et al., 2023) and of all families that differ from it only by
// options: position of the norms, packed projections, rotary layout. The model's description lists
// the layers of a block.
#include <ATen/ATen.h>

#include "nn/activation.h"
#include "nn/experts.h"
#include "nn/families.h"
#include "ops/rope.h"

namespace lockstep::nn {
namespace {

bool packs_head_by_head(const UnitLayers& layers) {
  const model::LayerSpec* const packed = layers.find("query_key_value");
  return packed != nullptr && packed->out == model::Dim::kHeadTriples;
}

bool norms_heads(const UnitLayers& layers) {
  const model::LayerSpec* const norm = layers.find("query_norm");
  return norm != nullptr && norm->weight().dims.front() == model::Dim::kHeadDim;
}

class DecoderBlock final : public Block {
 public:
  DecoderBlock(const model::ModelConfig& config, int64_t layer)
      : Block(layer),
        layers_(config, layer),
        head_dim_(config.head_dim),
        queries_per_key_(config.queries_per_kv_head()),
        limit_(config.query_key_value_limit),
        activation_(config.activation),
        parallel_residual_(config.parallel_residual),
        is_rotated_(config.rope.type != model::RopeType::kNone),
        is_head_by_head_(packs_head_by_head(layers_)),
        norm_is_of_heads_(norms_heads(layers_)),
        pairing_(
            config.rope_of(layer).in_pairs ? ops::RotaryPairs::kNeighbours
                                           : ops::RotaryPairs::kHalves),
        attention_norm_(layers_.norm("attention_norm")),
        attention_out_norm_(layers_.norm("attention_out_norm")),
        attention_sum_norm_(layers_.norm("attention_sum_norm")),
        mlp_norm_(layers_.norm("mlp_norm")),
        mlp_sum_norm_(layers_.norm("mlp_sum_norm")),
        mlp_out_norm_(layers_.norm("mlp_out_norm")),
        query_norm_(layers_.norm("query_norm")),
        key_norm_(layers_.norm("key_norm")),
        attention_input_(std::make_shared<RegionBoundary>()),
        mlp_input_(std::make_shared<RegionBoundary>()),
        query_key_value_(layers_.linear("query_key_value")),
        query_(layers_.linear("query")),
        key_(layers_.linear("key")),
        value_(layers_.linear("value")),
        attention_out_(layers_.linear("attention_out")),
        mlp_gate_up_(layers_.linear("mlp_gate_up")),
        mlp_gate_(layers_.linear("mlp_gate")),
        mlp_up_(layers_.linear("mlp_up")),
        mlp_down_(layers_.linear("mlp_down")),
        experts_(
            config.has_experts(layer) ? std::make_unique<ExpertMlp>(config, layers_, layer)
                                      : nullptr),
        attention_(make_attention(config, layer)),
        attention_dropout_(make_dropout(
            config.drops_attention_output ? config.residual_dropout : 0,
            "attention_dropout",
            layer)),
        mlp_dropout_(make_dropout(config.residual_dropout, "mlp_dropout", layer)) {}

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    const auto [x, normal_x] = attention_norm_ == nullptr
                                   ? ops::SumAndNorm{inputs.front(), inputs.front()}
                                   : attention_norm_->forward_beside(inputs.front());
    const Tensor attended = attention_dropout_->forward(
        normalized(attention_out_norm_, attend(normal_x, context)), context);
    if (attention_sum_norm_ != nullptr) {
      const Tensor sum = attention_sum_norm_->add_forward(attended, x).norm;
      return {mlp_sum_norm_->add_forward(mlp(sum, context), sum).norm};
    }
    if (parallel_residual_) {
      return {x + attended + mlp(normalized(mlp_norm_, x), context)};
    }
    if (mlp_norm_ == nullptr) {
      const Tensor sum = attended + x;
      return {sum + mlp(sum, context)};
    }
    const auto [sum, normal] = mlp_norm_->add_forward(attended, x);
    return {sum + mlp(normal, context)};
  }

  void visit_slots(const SlotFunction& visit) override {
    const auto visit_layer = [&](const char* role, auto& slot) {
      if (slot != nullptr) {
        visit(layers_.name(role), slot);
      }
    };
    visit_layer("attention_norm", attention_norm_);
    visit(layers_.name("attention_input"), attention_input_);
    visit_layer("query_key_value", query_key_value_);
    visit_layer("query", query_);
    visit_layer("key", key_);
    visit_layer("value", value_);
    visit_layer("query_norm", query_norm_);
    visit_layer("key_norm", key_norm_);
    visit(layers_.name("attention"), attention_);
    visit(layers_.name("attention_out"), attention_out_);
    visit_layer("attention_out_norm", attention_out_norm_);
    visit(layers_.name("attention_dropout"), attention_dropout_);
    visit_layer("attention_sum_norm", attention_sum_norm_);
    visit_layer("mlp_norm", mlp_norm_);
    visit(layers_.name("mlp_input"), mlp_input_);
    visit_layer("mlp_gate_up", mlp_gate_up_);
    visit_layer("mlp_gate", mlp_gate_);
    visit_layer("mlp_up", mlp_up_);
    visit_layer("mlp_down", mlp_down_);
    if (experts_ != nullptr) {
      experts_->visit_slots(visit);
    }
    visit_layer("mlp_out_norm", mlp_out_norm_);
    visit(layers_.name("mlp_dropout"), mlp_dropout_);
    visit_layer("mlp_sum_norm", mlp_sum_norm_);
  }

 private:
  /// Queries, keys and values, each [B, T, heads, D].
  struct Heads {
    Tensor query, key, value;
  };

  static Tensor normalized(const std::shared_ptr<Norm>& norm, const Tensor& x) {
    return norm == nullptr ? x : norm->forward(x);
  }

  Heads project(const Tensor& x, const ForwardContext& context) const {
    const auto heads = [&](const Linear& linear) {
      return linear.forward(x, context).unflatten(-1, {-1, head_dim_});
    };
    if (query_key_value_ == nullptr) {
      return {heads(*query_), heads(*key_), heads(*value_)};
    }
    const Tensor packed = heads(*query_key_value_);  // [B, T, H + 2 Hkv, D]
    if (is_head_by_head_) {
      const Tensor triples = packed.unflatten(2, {-1, 3});  // [B, T, H, 3, D]
      return {triples.select(3, 0), triples.select(3, 1), triples.select(3, 2)};
    }
    const int64_t keys = packed.size(2) / (queries_per_key_ + 2),
                  queries = packed.size(2) - 2 * keys;
    return {
        packed.narrow(2, 0, queries),
        packed.narrow(2, queries, keys),
        packed.narrow(2, queries + keys, keys)};
  }

  /// Normalizes queries or keys (per head or over all heads) and applies the rotary embedding.
  Tensor placed(
      const Tensor& heads, const std::shared_ptr<Norm>& norm, const ForwardContext& context) const {
    const Tensor normal = limited(
        norm == nullptr     ? heads
        : norm_is_of_heads_ ? norm->forward(heads)
                            : norm->forward(heads.flatten(2)).view(heads.sizes()));
    if (!is_rotated_) {
      return normal.transpose(1, 2);
    }
    const Rotary& rotary = context.rotary(heads.device(), layer());
    return ops::rotate(normal, rotary.cos, rotary.sin, pairing_).transpose(1, 2);  // [B, H, T, D]
  }

  Tensor attend(const Tensor& normal, const ForwardContext& context) const {
    const Heads heads = project(attention_input_->forward(normal), context);
    return attention_out_->forward(
        attention_->forward(
            placed(heads.query, query_norm_, context),
            placed(heads.key, key_norm_, context),
            limited(heads.value).transpose(1, 2),
            context),
        context);  // [B, T, C]
  }

  Tensor limited(const Tensor& x) const { return limit_ > 0 ? x.clamp(-limit_, limit_) : x; }

  /// Returns the MLP's contribution to the residual stream.
  Tensor mlp(const Tensor& normal, const ForwardContext& context) const {
    const Tensor x = mlp_input_->forward(normal);
    const Tensor out = experts_ != nullptr ? experts_->forward(x, context)
                                           : mlp_down_->forward(activated(x, context), context);
    return mlp_dropout_->forward(normalized(mlp_out_norm_, out), context);
  }

  Tensor activated(const Tensor& x, const ForwardContext& context) const {
    if (mlp_gate_up_ != nullptr) {
      const auto both = mlp_gate_up_->forward(x, context).chunk(2, -1);
      return activate_gate(activation_, both[0], both[1]);
    }
    const Tensor up = mlp_up_->forward(x, context);
    return mlp_gate_ == nullptr ? activate(activation_, up)
                                : activate_gate(activation_, mlp_gate_->forward(x, context), up);
  }

  UnitLayers layers_;
  int64_t head_dim_, queries_per_key_;
  double limit_;  // queries, keys and values are clamped to this magnitude; 0: no clamping
  model::Activation activation_;
  bool parallel_residual_, is_rotated_, is_head_by_head_, norm_is_of_heads_;
  ops::RotaryPairs pairing_;
  // Norms before the sublayers, on their outputs, on the residual sums, and on queries and keys.
  // Null if the family does not have them.
  std::shared_ptr<Norm> attention_norm_, attention_out_norm_, attention_sum_norm_;
  std::shared_ptr<Norm> mlp_norm_, mlp_sum_norm_, mlp_out_norm_;
  std::shared_ptr<Norm> query_norm_, key_norm_;
  std::shared_ptr<RegionBoundary> attention_input_, mlp_input_;
  // One packed projection or separate ones. Projections that the family does not have are null.
  std::shared_ptr<Linear> query_key_value_, query_, key_, value_, attention_out_;
  std::shared_ptr<Linear> mlp_gate_up_, mlp_gate_, mlp_up_, mlp_down_;
  std::unique_ptr<ExpertMlp> experts_;  // replaces the MLP's linear layers; null if the block is
                                        // dense
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace

std::shared_ptr<Block> make_decoder_block(const model::ModelConfig& config, int64_t layer) {
  return std::make_shared<DecoderBlock>(config, layer);
}

}  // namespace lockstep::nn
