// The product of a linear layer, whatever its weights are made of: dense, packed, with low-rank
// factors beside it. Its backward pass comes in two halves, so that whoever wants them at other
// times (a pipeline's schedule, tensor parallelism) gets them without knowing the weights.
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

/// A parameter of a layer, as a visitor sees it.
struct Parameter {
  std::string name;  // in the layer: "weight"; of the model it is the slot's prefix + "." + name
  Tensor& value;     // a leaf, which may be replaced; undefined: the layer has none of this name
  /// Of a linear's product: the dims of `value` that run along the layer's outputs and inputs. What
  /// tensor parallelism cuts; -1: there is none.
  int out = -1, in = -1;
  /// Of packed weights: which part of the matrix [out, in] the bytes of `value` are. Who replaces
  /// these by those of another part changes it.
  ops::PackedPart* packed = nullptr;
};
using ParameterFunction = std::function<void(const Parameter&)>;

/// From the largest magnitudes of what is here to those over all ranks that share it.
using Largest = std::function<Tensor(const Tensor&)>;
/// What of a product ranks may hold parts of.
enum class Shared { kInputs, kOutputs, kRows };

/// y = x W + b for some W and b. Layers own it, and a layer of another kind may take it over.
/// `drawn` is what draw() gave for the pass, in each of the three verbs.
class LinearKernel {
 public:
  LinearKernel() = default;
  virtual ~LinearKernel() = default;
  LinearKernel(const LinearKernel&) = delete;
  LinearKernel& operator=(const LinearKernel&) = delete;

  /// What a pass draws at random for it: it is kept until the backward pass, which needs the same.
  /// Undefined: nothing.
  virtual Tensor draw(const ForwardContext& context) const;
  /// [..., in] -> [..., out]; autograd records it where gradients are on.
  virtual Tensor forward(const Tensor& x, const Tensor& drawn) const = 0;
  // The backward pass in halves; no autograd.
  /// [..., out] -> [..., in]
  virtual Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const = 0;
  /// Adds the gradients of all trained parameters, by accumulate_gradient. x as in forward().
  virtual void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const = 0;
  /// Whether any parameter is trained. Where none is, nobody needs to keep x.
  virtual bool is_trained() const = 0;
  virtual void visit_parameters(const ParameterFunction& function) = 0;
  /// Rows of W of what is here, [count, in] of [out, in], of any floating type: a view, or made for
  /// this call; no autograd. Undefined: it is not one matrix.
  virtual Tensor matrix_rows(int64_t /*first*/, int64_t /*count*/) const { return {}; }
  /// Hands the bias to a layer that adds it elsewhere; undefined where there is none.
  virtual Tensor take_bias() { return {}; }
  /// The dropout of its input, in whose place a strategy puts that of a part of the input; null:
  /// there is none.
  virtual std::shared_ptr<Dropout>* input_dropout() { return nullptr; }
  /// Takes what stands beside a base product out of forward(), or puts it back; meanwhile no
  /// gradient may be asked for. Without effect on a product that is no adapter's.
  virtual void set_adapted(bool /*is_on*/) {}
  /// Where ranks hold parts of the layer's inputs: how they sum what is a sum over all of these.
  /// The ranks call it in the same order. Without effect on a product that has no such sums.
  virtual void set_sum_over_inputs(std::function<Tensor(const Tensor&)> /*sum*/) {}
  /// Where ranks hold parts of the inputs, of the outputs, or of the rows of x: how they find the
  /// largest magnitude over all. Without effect on a product that scales nothing by it.
  virtual void set_largest_over(Shared /*what*/, Largest /*largest*/) {}
  /// Where so many ranks hold the same outputs, and each has a part of their gradient: how the
  /// parts add up. Without effect on a product whose gradients may be made of parts.
  virtual void set_sum_over_copies(
      int64_t /*copies*/, std::function<Tensor(const Tensor&)> /*sum*/) {}
};

/// One matrix, and perhaps a bias that is added on the way.
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

/// What is done with a half of a backward pass that can wait.
using Later = std::function<void(std::function<void()> work)>;

/// product.forward(x, drawn) as one node of autograd: its backward pass makes the input's gradient
/// and gives `later` what accumulates the weights'. x must need a gradient. Autograd does not see
/// the parameters; where none is trained x is not kept.
Tensor multiply_in_halves(
    const std::shared_ptr<const LinearKernel>& product,
    const Tensor& x,
    const Tensor& drawn,
    const Later& later);

/// Adds `gradient` to the parameter's, with the hooks that autograd would call. Undefined: it is
/// where it belongs already (ops/gradient_sink.h), or there is none.
void accumulate_gradient(const Tensor& parameter, Tensor gradient);
/// While `work` runs, this thread's accumulate_gradient keeps what it is given: it is added to what
/// the parameter gets next, and hooks see the sum.
void hold_gradients(const std::function<void()>& work);

}  // namespace lockstep::nn
