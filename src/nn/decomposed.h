// DoRA adapters: low-rank updates of the directions of a weight's rows, with trained row magnitudes
// (Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation", 2024).
#pragma once

#include <functional>
#include <memory>

#include "nn/low_rank.h"

namespace lockstep::nn {

/// Adds DoRA to a dense product: y = x W^T + b + (k - 1) x' W^T + k s B A x', where x' = dropout(x)
/// and k = m / n. m [out] is trained. n [out] are the row norms of W + s B A, which the backward
/// pass treats as constants (section 4.3). Without dropout this is b + k (x W^T + s B A x),
/// equation 5.
class DecomposedLinearKernel final : public LinearKernel {
 public:
  DecomposedLinearKernel(
      std::shared_ptr<LinearKernel> base, double scale, std::shared_ptr<Dropout> dropout);

  Tensor draw(const ForwardContext& context) const override;
  Tensor forward(const Tensor& x, const Tensor& drawn) const override;
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override;
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override;
  bool is_trained() const override;
  /// Visits the parameters of the base layer, then the factors, then lora_magnitude_vector.
  void visit_parameters(const ParameterFunction& function) override;
  Tensor take_bias() override;
  std::shared_ptr<Dropout>* input_dropout() override { return &factors_.dropout; }
  void set_adapted(bool is_on) override { factors_.are_on = is_on; }
  void set_largest_over(Shared what, Largest largest) override {
    base_->set_largest_over(what, std::move(largest));
  }
  void set_sum_over_copies(int64_t copies, std::function<Tensor(const Tensor&)> sum) override {
    base_->set_sum_over_copies(copies, std::move(sum));
  }
  void set_sum_over_inputs(std::function<Tensor(const Tensor&)> sum) override;

 private:
  /// Returns the row norms n, which are recomputed after weights or factors have changed (once per
  /// step).
  const Tensor& norms() const;
  /// Returns x' in the base layer's type.
  Tensor dropped(const Tensor& x, const Tensor& drawn) const;

  std::shared_ptr<LinearKernel> base_;  // its bias has been moved to bias_
  LowRankFactors factors_;
  Tensor magnitudes_, bias_;
  std::function<Tensor(const Tensor&)> sum_over_inputs_;  // null: this rank has all inputs
  mutable Tensor norms_;
  mutable int64_t norms_version_ = -1;
};

/// Returns the norms [out] of the rows of W + s B A in float32, where `matrix` is W [out, in].
Tensor row_norms(const Tensor& matrix, const Tensor& a, const Tensor& b, double scale);

}  // namespace lockstep::nn
