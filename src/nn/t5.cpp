// T5 (Raffel et al., "Exploring the Limits of Transfer Learning", 2020): an encoder and a decoder.
#include <ATen/ATen.h>

#include "model/encoder_head.h"
#include "nn/activation.h"
#include "nn/families.h"
#include "nn/key_value_cache.h"
#include "ops/embedding.h"

namespace lockstep::nn {
namespace {

/// Tensors that the units exchange, in this order.
struct Streams {
  Tensor target;  // [B, T, C]
  Tensor source;  // [B, S, C]; undefined if the cache already contains the source's keys and values
  Tensor target_positions;  // [buckets, H]
  Tensor source_positions;

  static Streams of(const Tensors& tensors) {
    return {tensors.at(0), tensors.at(1), tensors.at(2), tensors.at(3)};
  }
  Tensors tensors() const { return {target, source, target_positions, source_positions}; }
};

/// Returns the bias of the attention scores, [H, T, S]: the table's row for each query and key.
Tensor bias_of(const Tensor& table, const Tensor& buckets) {
  return ops::embedding(table, buckets).permute({2, 0, 1});
}

std::shared_ptr<BiasedAttention> make_biased_attention(
    const model::ModelConfig& config, std::string_view role, int64_t layer) {
  auto attention = std::make_shared<BiasedAttention>();
  attention->dropout = config.attention_dropout;
  attention->site = dropout_site(role, layer);
  return attention;
}

/// Norm and attention over the block's own sequence or over the source. The next norm adds the
/// output to the residual.
class T5Attention {
 public:
  enum class Kind { kSelf, kCross };
  T5Attention(const model::ModelConfig& config, const UnitLayers& layers, int64_t layer, Kind kind)
      : kind_(kind),
        head_dim_(config.head_dim),
        norm_(layers.norm(kind == Kind::kSelf ? "attention_norm" : "cross_norm")),
        input_(std::make_shared<RegionBoundary>()),
        query_(layers.linear(role("query"))),
        key_(layers.linear(role("key"))),
        value_(layers.linear(role("value"))),
        out_(layers.linear(role("attention_out"))),
        attention_(make_biased_attention(config, role("attention"), layer)),
        dropout_(make_dropout(config.residual_dropout, dropout_role(), layer)) {}

  /// Returns x as the residual, and its norm as the input of the attention.
  ops::SumAndNorm normalized(const Tensor& hidden) const {
    const auto [x, normal] = norm_->forward_beside(hidden);
    return {x, input_->forward(normal)};
  }
  ops::SumAndNorm add_normalized(const Tensor& found, const Tensor& residual) const {
    const auto [sum, normal] = norm_->add_forward(found, residual);
    return {sum, input_->forward(normal)};
  }
  /// Returns the keys and values for hidden states [B, S, C], each [B, H, S, D].
  std::pair<Tensor, Tensor> keys_and_values(
      const Tensor& hidden, const ForwardContext& context) const {
    return {heads(*key_, hidden, context), heads(*value_, hidden, context)};
  }
  /// Returns the attention output [B, T, C] of the normalized x over keys and values.
  Tensor attend(
      const Tensor& normal,
      const std::pair<Tensor, Tensor>& keys_and_values,
      const Tensor& bias,
      const Tensor& visible,
      const ForwardContext& context) const {
    const auto& [keys, values] = keys_and_values;
    const Tensor found =
        attention_->forward(heads(*query_, normal, context), keys, values, bias, visible, context);
    return dropout_->forward(out_->forward(found, context), context);
  }

  void visit_slots(const SlotFunction& visit, const UnitLayers& layers) {
    const bool self = kind_ == Kind::kSelf;
    visit(layers.name(self ? "attention_norm" : "cross_norm"), norm_);
    visit(layers.name(self ? "attention_input" : "cross_input"), input_);
    visit(layers.name(role("query")), query_);
    visit(layers.name(role("key")), key_);
    visit(layers.name(role("value")), value_);
    visit(layers.name(role("attention")), attention_);
    visit(layers.name(role("attention_out")), out_);
    visit(layers.name(dropout_role()), dropout_);
  }

 private:
  std::string role(const char* own) const {
    return kind_ == Kind::kSelf ? own : std::string("cross_") + own;
  }
  const char* dropout_role() const {
    return kind_ == Kind::kSelf ? "attention_dropout" : "cross_dropout";
  }
  /// [B, T, C] -> [B, H, T, D]
  Tensor heads(const Linear& linear, const Tensor& x, const ForwardContext& context) const {
    return linear.forward(x, context).unflatten(-1, {-1, head_dim_}).transpose(1, 2);
  }

  Kind kind_;
  int64_t head_dim_;
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<RegionBoundary> input_;
  std::shared_ptr<Linear> query_, key_, value_, out_;
  std::shared_ptr<BiasedAttention> attention_;
  std::shared_ptr<Dropout> dropout_;
};

/// The MLP sublayer: norm, MLP and residual.
class T5Mlp {
 public:
  T5Mlp(const model::ModelConfig& config, const UnitLayers& layers, int64_t layer)
      : activation_(config.activation),
        norm_(layers.norm("mlp_norm")),
        input_(std::make_shared<RegionBoundary>()),
        gate_(layers.linear("mlp_gate")),
        up_(layers.linear("mlp_up")),
        down_(layers.linear("mlp_down")),
        inner_dropout_(make_dropout(config.mlp_dropout, "mlp_inner_dropout", layer)),
        dropout_(make_dropout(config.residual_dropout, "mlp_dropout", layer)) {}

  /// Adds `found` to the residual and computes the MLP of the norm of the sum.
  Tensor forward(const Tensor& found, const Tensor& residual, const ForwardContext& context) const {
    const auto [x, normalized] = norm_->add_forward(found, residual);
    const Tensor normal = input_->forward(normalized);
    const Tensor inner =
        gate_ == nullptr
            ? activate(activation_, up_->forward(normal, context))
            : activate_gate(
                  activation_, gate_->forward(normal, context), up_->forward(normal, context));
    const Tensor kept = inner_dropout_->forward(inner, context);
    return x + dropout_->forward(down_->forward(kept, context), context);
  }

  void visit_slots(const SlotFunction& visit, const UnitLayers& layers) {
    visit(layers.name("mlp_norm"), norm_);
    visit(layers.name("mlp_input"), input_);
    if (gate_ != nullptr) {
      visit(layers.name("mlp_gate"), gate_);
    }
    visit(layers.name("mlp_up"), up_);
    visit(layers.name("mlp_inner_dropout"), inner_dropout_);
    visit(layers.name("mlp_down"), down_);
    visit(layers.name("mlp_dropout"), dropout_);
  }

 private:
  model::Activation activation_;
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<RegionBoundary> input_;
  std::shared_ptr<Linear> gate_, up_, down_;
  std::shared_ptr<Dropout> inner_dropout_, dropout_;
};

class T5EncoderBlock final : public Block {
 public:
  T5EncoderBlock(const model::ModelConfig& config, int64_t layer)
      : Block(layer),
        layers_(config, layer),
        attention_(config, layers_, layer, T5Attention::Kind::kSelf),
        mlp_(config, layers_, layer),
        final_norm_(layers_.norm("encoder_norm")) {
    if (final_norm_ != nullptr) {
      output_ = std::make_shared<RegionBoundary>();
      final_dropout_ = make_dropout(config.final_dropout, "encoder_dropout", layer);
    }
  }

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    if (!context.encodes()) {
      return inputs;
    }
    Streams streams = Streams::of(inputs);
    const auto [x, normal] = attention_.normalized(streams.source);
    const Tensor found = attention_.attend(
        normal,
        attention_.keys_and_values(normal, context),
        bias_of(streams.source_positions, context.relative_buckets(Visibility::kBoth, x.device())),
        context.visible_source(x.device()),
        context);
    streams.source = mlp_.forward(found, x, context);
    if (final_norm_ != nullptr) {
      streams.source =
          final_dropout_->forward(output_->forward(final_norm_->forward(streams.source)), context);
    }
    return streams.tensors();
  }

  void visit_slots(const SlotFunction& visit) override {
    attention_.visit_slots(visit, layers_);
    mlp_.visit_slots(visit, layers_);
    if (final_norm_ != nullptr) {
      visit(layers_.name("encoder_norm"), final_norm_);
      visit(layers_.name("encoder_output"), output_);
      visit(layers_.name("encoder_dropout"), final_dropout_);
    }
  }

 private:
  UnitLayers layers_;
  T5Attention attention_;
  T5Mlp mlp_;
  std::shared_ptr<Norm> final_norm_;  // norm of the encoder output, in its last block
  std::shared_ptr<RegionBoundary> output_;
  std::shared_ptr<Dropout> final_dropout_;
};

class T5DecoderBlock final : public Block {
 public:
  T5DecoderBlock(const model::ModelConfig& config, int64_t layer)
      : Block(layer),
        layers_(config, layer),
        attention_(config, layers_, layer, T5Attention::Kind::kSelf),
        cross_(config, layers_, layer, T5Attention::Kind::kCross),
        mlp_(config, layers_, layer) {}

  Tensors forward(const Tensors& inputs, const ForwardContext& context) const override {
    Streams streams = Streams::of(inputs);
    const auto [target, normal_target] = attention_.normalized(streams.target);
    const auto [x, normal] = cross_.add_normalized(attend(normal_target, streams, context), target);
    const auto make = [&] { return cross_.keys_and_values(streams.source, context); };
    const auto keys_and_values =
        context.cache() == nullptr ? make() : context.cache()->source(layer(), make);
    const Tensor found =
        cross_.attend(normal, keys_and_values, {}, context.visible_source(x.device()), context);
    streams.target = mlp_.forward(found, x, context);
    return streams.tensors();
  }

  void visit_slots(const SlotFunction& visit) override {
    attention_.visit_slots(visit, layers_);
    cross_.visit_slots(visit, layers_);
    mlp_.visit_slots(visit, layers_);
  }

 private:
  Tensor attend(const Tensor& normal, const Streams& streams, const ForwardContext& context) const {
    auto keys_and_values = attention_.keys_and_values(normal, context);
    if (context.cache() != nullptr) {
      keys_and_values =
          context.cache()->append(layer(), keys_and_values.first, keys_and_values.second);
    }
    const Tensor& buckets = context.relative_buckets(Visibility::kCausal, normal.device());
    return attention_.attend(
        normal,
        keys_and_values,
        bias_of(streams.target_positions, buckets),
        context.visible_target(normal.device()),
        context);
  }

  UnitLayers layers_;
  T5Attention attention_, cross_;
  T5Mlp mlp_;
};

class T5 final : public LanguageModel {
 public:
  T5(const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks)
      : LanguageModel(config, part, std::move(blocks)),
        stacks_(model::embeddings_of_stacks(config)) {
    if (part.embedding) {
      target_positions_ = std::make_shared<RelativePositionTable>();
      source_positions_ = std::make_shared<RelativePositionTable>();
      source_tokens_ = std::make_shared<SequenceTokens>();
      target_tokens_ = std::make_shared<SequenceTokens>();
      target_dropout_ = make_dropout(config.embedding_dropout, "target_embedding_dropout", -1);
    }
    if (part.head) {
      const bool classifies = config.head.classifies();
      final_dropout_ = make_dropout(config.final_dropout, role_of_final_dropout(classifies), -1);
    }
    if (part.head && config.head.classifies()) {
      form_ = model::encoder_head(config);
      before_ = make_dropout(form_.dropout_before, "head_input_dropout", -1);
      dense_ = head_layers_.linear("head_dense");
      after_ = make_dropout(form_.dropout_after, "head_dropout", -1);
    }
  }

 protected:
  Tensors embedded(const ForwardContext& context) const override {
    const ForwardInputs& inputs = context.inputs();
    Streams streams;
    streams.target_positions = target_positions_->forward();
    streams.source_positions = source_positions_->forward();
    if (!context.encodes()) {
      const Tensors found = tokens->forward_each({inputs.ids}, {target_tokens_->adapter.get()});
      streams.target = target_dropout_->forward(found[0], context);
      return streams.tensors();
    }
    const Tensors parts = tokens->forward_each(
        {inputs.source, inputs.ids},
        {source_tokens_->adapter.get(), target_tokens_->adapter.get()});
    streams.source = embedding_dropout->forward(parts[0], context);
    streams.target = target_dropout_->forward(parts[1], context);
    return streams.tensors();
  }
  Tensor head_states(const Tensor& x, const ForwardContext& context) const override {
    if (dense_ != nullptr) {
      const Tensor found = final_dropout_->forward(final_norm->forward(x), context);
      const Tensor inner =
          activate(form_.activation, dense_->forward(before_->forward(found, context), context));
      return head_input->forward(after_->forward(inner, context));
    }
    const Tensor states =
        final_dropout_->forward(head_input->forward(final_norm->forward(x)), context);
    return config().head_scale == 1 ? states : states * config().head_scale;
  }
  void visit_embedding(const SlotFunction& visit) override {
    const UnitLayers& layers = embedding_layers_;
    visit({"source_tokens", -1, stacks_[0].prefix}, source_tokens_);
    visit({"target_tokens", -1, stacks_[1].prefix}, target_tokens_);
    visit(layers.name("source_positions"), source_positions_);
    visit(layers.name("target_positions"), target_positions_);
    visit(layers.name("embedding_dropout"), embedding_dropout);
    visit(layers.name("target_embedding_dropout"), target_dropout_);
  }
  void visit_head(const SlotFunction& visit) override {
    const UnitLayers& layers = head_layers_;
    visit(layers.name("final_norm"), final_norm);
    if (dense_ != nullptr) {
      visit(layers.name(role_of_final_dropout(true)), final_dropout_);
      visit(layers.name("head_input_dropout"), before_);
      visit(layers.name("head_dense"), dense_);
      visit(layers.name("head_dropout"), after_);
      visit(layers.name("head_input"), head_input);
      return;
    }
    visit(layers.name("head_input"), head_input);
    visit(layers.name(role_of_final_dropout(false)), final_dropout_);
  }

 private:
  /// Returns the role of the final dropout, by which strategies know whether it is applied before
  /// or after the head's input is gathered.
  static const char* role_of_final_dropout(bool classifies) {
    return classifies ? "decoder_dropout" : "final_dropout";
  }

  std::shared_ptr<SequenceTokens> source_tokens_, target_tokens_;
  std::shared_ptr<RelativePositionTable> target_positions_, source_positions_;
  std::shared_ptr<Dropout> target_dropout_, final_dropout_;
  std::vector<model::LayerSpec> stacks_;  // embedding layers, named for the encoder and the decoder
  // Only set for classifiers.
  model::EncoderHead form_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<Dropout> before_, after_;
};

}  // namespace

std::shared_ptr<Block> make_t5_block(const model::ModelConfig& config, int64_t layer) {
  if (layer < config.encoder_layers) {
    return std::make_shared<T5EncoderBlock>(config, layer);
  }
  return std::make_shared<T5DecoderBlock>(config, layer);
}

std::unique_ptr<LanguageModel> make_t5(
    const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks) {
  return std::make_unique<T5>(config, part, std::move(blocks));
}

}  // namespace lockstep::nn
