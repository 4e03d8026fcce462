// Adapters of linears: low-rank factors beside weights that need not be trained (Hu et al., "LoRA:
// Low-Rank Adaptation of Large Language Models", 2021).
#pragma once

#include <memory>

#include "model/adapters.h"
#include "nn/language_model.h"
#include "nn/product.h"

namespace lockstep::nn {

/// y = base(x) + s B A dropout(x), equation 3 there, beside any other product. A [r, in] and
/// B [out, r] are leaves of a type of their own: what they add is computed in it, added to the
/// base's result in the wider of the two types, and rounded once to the base's.
class LowRankProduct final : public Product {
 public:
  /// `dropout` draws a mask of the input, of A's input alone.
  LowRankProduct(std::shared_ptr<Product> base, double scale, std::shared_ptr<Dropout> dropout);

  Tensor draw(const ForwardContext& context) const override;
  Tensor forward(const Tensor& x, const Tensor& drawn) const override;
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override;
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override;
  bool is_trained() const override;
  /// The base's, then lora_A.weight and lora_B.weight.
  void visit_parameters(const ParameterFunction& function) override;
  Tensor take_bias() override { return base_->take_bias(); }
  std::shared_ptr<Dropout>* input_dropout() override { return &dropout_; }

 private:
  /// What A reads: x in A's type, under the mask.
  Tensor rows_of(const Tensor& x, const Tensor& drawn) const;

  std::shared_ptr<Product> base_;
  double scale_;
  std::shared_ptr<Dropout> dropout_;
  Tensor a_, b_;
};

/// Puts the adapters beside the model's linears (of a part: those that it has), uninitialised, in
/// float32, on their weights' device, and into the model's description; of everything else what
/// `adapters` name is trained alone. To be called before any strategy.
void add_adapters(LanguageModel& model, const model::Adapters& adapters);

}  // namespace lockstep::nn
