// Kernel interface of linear layers: dense, packed, float8, or with low-rank factors. The backward
// pass is divided into input and weight gradients, so that a pipeline schedule or tensor
// parallelism can run them separately without access to the weights.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "ops/linear.h"
#include "ops/packed_part.h"

namespace lockstep::nn {

using at::Tensor;
using ops::WeightLayout;
class ForwardContext;
struct Dropout;

/// Reference to a parameter of a layer, passed to visitors.
struct Parameter {
  /// Name within the layer: "weight". The name within the model is the slot's prefix + "." + name.
  std::string name;
  /// A leaf tensor, which visitors may replace; undefined: the layer does not have this parameter.
  Tensor& value;
  /// For linear layers: dimensions of `value` along the layer's outputs and inputs, which tensor
  /// parallelism shards. -1: none.
  int out = -1, in = -1;
  /// For packed weights: the slice of the matrix [out, in] that the bytes of `value` encode. Code
  /// that replaces the bytes with those of another slice must update this description.
  ops::PackedPart* packed = nullptr;
};
using ParameterFunction = std::function<void(const Parameter&)>;

/// Replaces this rank's largest magnitudes by the maximum over all ranks that share the tensor.
using Largest = std::function<Tensor(const Tensor&)>;
/// Dimension of a product that is sharded over ranks.
enum class Shared { kInputs, kOutputs, kRows };

/// Computes y = x W + b for some W and b. A kernel belongs to a layer and may be moved to another.
/// In the three passes below, `drawn` is the result of draw() for the same forward pass.
class LinearKernel {
 public:
  LinearKernel() = default;
  virtual ~LinearKernel() = default;
  LinearKernel(const LinearKernel&) = delete;
  LinearKernel& operator=(const LinearKernel&) = delete;

  /// Returns the random state of this pass, which is saved for the backward pass; undefined: none.
  virtual Tensor draw(const ForwardContext& context) const;
  /// [..., in] -> [..., out]. Recorded by autograd if gradients are enabled.
  virtual Tensor forward(const Tensor& x, const Tensor& drawn) const = 0;
  // The two halves of the backward pass, without autograd.
  /// [..., out] -> [..., in]
  virtual Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const = 0;
  /// Adds the gradients of all trained parameters with accumulate_gradient. x is the input of
  /// forward().
  virtual void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const = 0;
  /// Returns true if any parameter is trained. If it returns false, x does not have to be saved.
  virtual bool is_trained() const = 0;
  virtual void visit_parameters(const ParameterFunction& function) = 0;
  /// Returns rows of this rank's W [out, in] as [count, in] of any floating-point type: a view or a
  /// temporary tensor, without autograd. Undefined if W is not a single matrix.
  virtual Tensor matrix_rows(int64_t /*first*/, int64_t /*count*/) const { return {}; }
  /// Moves the bias to a layer that adds it elsewhere. Undefined if there is no bias.
  virtual Tensor take_bias() { return {}; }
  /// Returns the dropout of the input, which a strategy that shards the input replaces; null: no
  /// dropout.
  virtual std::shared_ptr<Dropout>* input_dropout() { return nullptr; }
  /// Disables or enables the adapter on top of a base product. No gradients may be computed while
  /// it is disabled. Does nothing for kernels without an adapter.
  virtual void set_adapted(bool /*is_on*/) {}
  /// Sets the reduction for sums over the layer's inputs, if these are sharded over ranks. All
  /// ranks call it in the same order. Does nothing for kernels without such sums.
  virtual void set_sum_over_inputs(std::function<Tensor(const Tensor&)> /*sum*/) {}
  /// Sets the reduction of the largest magnitude, if the inputs, the outputs or the rows of x are
  /// sharded over ranks. Does nothing for kernels that do not scale by it.
  virtual void set_largest_over(Shared /*what*/, Largest /*largest*/) {}
  /// Sets the reduction of gradients over `copies` ranks that replicate the outputs, each with a
  /// partial gradient. Does nothing for kernels that support partial gradients.
  virtual void set_sum_over_copies(
      int64_t /*copies*/, std::function<Tensor(const Tensor&)> /*sum*/) {}
};

/// Product with one dense matrix and an optional bias.
class DenseLinearKernel final : public LinearKernel {
 public:
  explicit DenseLinearKernel(WeightLayout layout) : layout_(layout) {}
  Tensor forward(const Tensor& x, const Tensor& drawn) const override;
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override;
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override;
  bool is_trained() const override;
  void visit_parameters(const ParameterFunction& function) override;
  Tensor take_bias() override;
  Tensor matrix_rows(int64_t first, int64_t count) const override;

 private:
  WeightLayout layout_;
  Tensor weight_, bias_;
};

/// Schedules the half of a backward pass that may be deferred.
using Later = std::function<void(std::function<void()> work)>;

/// Runs product.forward(x, drawn) as one autograd node, whose backward pass computes the input
/// gradient and passes the accumulation of the weight gradients to `later`. x must require a
/// gradient. The parameters are not part of the autograd graph. If none of them is trained, x is
/// not saved.
Tensor multiply_in_halves(
    const std::shared_ptr<const LinearKernel>& product,
    const Tensor& x,
    const Tensor& drawn,
    const Later& later);

/// Adds `gradient` to the parameter's gradient and runs the hooks that autograd would run.
/// Undefined: the gradient has already been written (ops/gradient_sink.h), or the parameter has
/// none.
void accumulate_gradient(const Tensor& parameter, Tensor gradient);
/// Runs `work`. Meanwhile, accumulate_gradient on this thread stores gradients instead of
/// delivering them. They are added to the parameter's next gradient, so that hooks see the sum.
void hold_gradients(const std::function<void()>& work);

}  // namespace lockstep::nn
