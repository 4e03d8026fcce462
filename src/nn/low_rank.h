// LoRA adapters of linear layers: trained low-rank factors that are added to weights, which may be
// frozen (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021).
#pragma once

#include <memory>

#include "model/adapters.h"
#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "nn/low_rank_factors.h"

namespace lockstep::nn {

/// Adds LoRA to any other kernel: y = base(x) + s B A dropout(x), equation 3. The sum is computed
/// in the wider of the two types and rounded once to the type of the base.
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
  /// Visits the parameters of the base kernel, then the factors.
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

/// Adds adapters to the linear layers and tables that this model or stage contains, and to the
/// model's description. The adapters are uninitialized, float32, and on the device of the weights.
/// Freezes all other parameters except those that `adapters` lists as trained. Call before any
/// parallelism strategy.
void add_adapters(LanguageModel& model, const model::Adapters& adapters);

/// Enables or disables the adapters (LinearKernel::set_adapted). Other trained parameters stay in
/// effect.
void set_adapters(LanguageModel& model, bool are_on);

}  // namespace lockstep::nn
