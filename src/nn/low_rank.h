// Adapters of linears: low-rank factors beside weights that need not be trained (Hu et al., "LoRA:
// Low-Rank Adaptation of Large Language Models", 2021).
#pragma once

#include <memory>

#include "model/adapters.h"
#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "nn/low_rank_factors.h"

namespace lockstep::nn {

/// y = base(x) + s B A dropout(x), equation 3 there, beside any other product: added in the wider
/// of the two types, and rounded once to the base's.
class LowRankLinearKernel final : public LinearKernel {
 public:
  LowRankLinearKernel(
      std::shared_ptr<LinearKernel> base, double scale, std::shared_ptr<Dropout> dropout);

  Tensor draw(const ForwardContext& context) const override;
  Tensor forward(const Tensor& x, const Tensor& drawn) const override;
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override;
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override;
  bool is_trained() const override { return factors_.are_trained() || base_->is_trained(); }
  /// The base's, then the factors'.
  void visit_parameters(const ParameterFunction& function) override;
  Tensor take_bias() override { return base_->take_bias(); }
  std::shared_ptr<Dropout>* input_dropout() override { return &factors_.dropout; }
  void set_adapted(bool is_on) override { factors_.are_on = is_on; }
  void set_largest_over(Shared what, Largest largest) override {
    base_->set_largest_over(what, std::move(largest));
  }
  void set_sum_over_copies(int64_t copies, std::function<Tensor(const Tensor&)> sum) override {
    base_->set_sum_over_copies(copies, std::move(sum));
  }

 private:
  std::shared_ptr<LinearKernel> base_;
  LowRankFactors factors_;
};

/// Puts the adapters beside the model's linears and tables (of a part: those that it has),
/// uninitialised, in float32, on their weights' device, and into the model's description; of
/// everything else what `adapters` name is trained alone. To be called before any strategy.
void add_adapters(LanguageModel& model, const model::Adapters& adapters);

/// Takes the adapters out of the products, or puts them back (Product::set_adapted). What else is
/// trained stays.
void set_adapters(LanguageModel& model, bool are_on);

}  // namespace lockstep::nn
