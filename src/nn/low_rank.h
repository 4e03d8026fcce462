// LoRA adapters of linear layers: trained low-rank factors added to weights that may be frozen (Hu
// et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021).
#pragma once

#include <memory>

#include "model/adapters.h"
#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "nn/low_rank_factors.h"

namespace lockstep::nn {

/// y = base(x) + s B A dropout(x), equation 3, on top of any other kernel. The sum uses the wider
/// of the two types and is rounded once to the base's type.
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
  /// Visits the base's parameters, then the factors.
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

/// Adds the adapters to the model's linears and tables (in a stage: to those that it has),
/// uninitialized, in float32, on the device of the weights, and to the model's description. Freezes
/// all other parameters except those that `adapters` lists as trained. Call before any strategy.
void add_adapters(LanguageModel& model, const model::Adapters& adapters);

/// Enables or disables the adapters (LinearKernel::set_adapted). Other trained parameters stay in
/// effect.
void set_adapters(LanguageModel& model, bool are_on);

}  // namespace lockstep::nn
