// Linears whose products are made in 8-bit floats (ops/float8.h). Weights keep their type: they are
// rounded for each product, as what they are multiplied by is.
#pragma once

#include <functional>
#include <memory>

#include "model/float8.h"
#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "ops/float8.h"

namespace lockstep::nn {

/// What the linears of a model rounded last as an input: the next one often reads the same, as
/// queries, keys and values do, forward and backward. Nobody's else: not thread-safe.
struct LastInput {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> x{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  int64_t version = 0;  // of x, which may be written anew
  ops::Float8Order order = ops::Float8Order::kRows;
  bool is_agreed = false;  // whether over other ranks' inputs
  ops::Float8Rows rows;
};

/// y = x W + b, where x and W are rounded to e4m3 and the gradient of y to e5m2, each in one way
/// for all products that it is in: an input's scale, which is a power of two, goes over to the
/// gradient that it is multiplied by, whose type has room for it.
class Float8LinearKernel final : public LinearKernel,
                                 public std::enable_shared_from_this<Float8LinearKernel> {
 public:
  /// `last` is of all linears of the model; null: inputs are rounded for each product.
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

  // Its verbs without a graph.
  Tensor multiply(const Tensor& x) const;
  /// In the weight's layout.
  Tensor weight_gradient(const Tensor& y_gradient, const Tensor& x) const;

 private:
  // As rows that x, W and the gradient of y are of products.
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
  Largest over_inputs_, over_outputs_, over_rows_;  // null: this rank has all of them
  int64_t copies_ = 1;
  std::function<Tensor(const Tensor&)> sum_over_copies_;
};

/// Puts such products into the dense linears of the model (of a part: those that it has) that
/// `float8` means. To be called before adapters are added, and before any strategy. Error
/// (kConfig): model::float8_linears; weights are packed.
void round_linears(LanguageModel& model, const model::Float8& float8);

}  // namespace lockstep::nn
