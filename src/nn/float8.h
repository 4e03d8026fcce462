// Linear layers that multiply in float8 (ops/float8.h). The stored weights keep their type; weights
// and inputs are rounded for each product.
#pragma once

#include <functional>
#include <memory>

#include "model/float8.h"
#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "ops/float8.h"

namespace lockstep::nn {

/// Cache of the most recently rounded input, shared by the linear layers of a model, because
/// consecutive layers (query, key, value) often read the same input in the forward and in the
/// backward pass. Not thread-safe.
struct LastInput {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> x{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  int64_t version = 0;  // version counter of x, which reveals in-place writes
  ops::Float8Order order = ops::Float8Order::kRows;
  bool is_agreed = false;  // true: the scale was reduced over the other ranks
  ops::Float8Rows rows;
};

/// Computes y = x W + b with x and W rounded to e4m3 and the gradient of y rounded to e5m2. Each
/// tensor is rounded once for all products that use it: the scales of the other operand, which are
/// powers of two, are folded into the gradient, because e5m2 has a sufficient range.
class Float8LinearKernel final : public LinearKernel,
                                 public std::enable_shared_from_this<Float8LinearKernel> {
 public:
  /// `last` is shared by all linear layers of the model; null: inputs are rounded for each product.
  Float8LinearKernel(
      ops::SharedScale shared,
      WeightLayout layout,
      Tensor weight,
      Tensor bias,
      std::shared_ptr<LastInput> last = nullptr);

  Tensor forward(const Tensor& x, const Tensor& drawn) const override;
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override;
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override;
  bool is_trained() const override;
  void visit_parameters(const ParameterFunction& function) override;
  Tensor take_bias() override;
  Tensor matrix_rows(int64_t first, int64_t count) const override;
  void set_largest_over(Shared what, Largest largest) override;
  void set_sum_over_copies(int64_t copies, std::function<Tensor(const Tensor&)> sum) override;

  // Products without autograd.
  Tensor multiply(const Tensor& x) const;
  /// Returns the gradient in the weight's layout.
  Tensor weight_gradient(const Tensor& y_gradient, const Tensor& x) const;

 private:
  // Rounds x, W or the gradient of y, in rows along the dimension over which the product sums.
  ops::Float8Rows rounded(const Tensor& x, ops::Float8Order order = ops::Float8Order::kRows) const;
  ops::Float8Rows rounded_anew(const Tensor& x, ops::Float8Order order) const;
  ops::Float8Rows rounded_weight(ops::Float8Order order = ops::Float8Order::kRows) const;
  Tensor whole_gradient(const Tensor& y_gradient) const;
  Tensor share(Tensor made) const;
  ops::Float8Rows rounded_gradient(const ops::FactoredRows& rows) const;
  bool is_out_in() const { return layout_ == WeightLayout::kOutIn; }

  ops::SharedScale shared_;
  WeightLayout layout_;
  Tensor weight_, bias_;
  std::shared_ptr<LastInput> last_;
  Largest over_inputs_, over_outputs_, over_rows_;  // reductions over other ranks; null: this rank
                                                    // has all values
  int64_t copies_ = 1;
  std::function<Tensor(const Tensor&)> sum_over_copies_;
};

/// Installs float8 products in the dense linear layers selected by `float8` that this model part
/// contains. Call before adapters are added and before any parallelism strategy. Throws Error
/// (kConfig) as model::float8_linears does, and if weights are packed.
void round_linears(LanguageModel& model, const model::Float8& float8);

}  // namespace lockstep::nn
