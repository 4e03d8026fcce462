// Linears whose weights are packed in 4 or 8 bits (Dettmers et al., "QLoRA", 2023): they are frozen
// by nature. What is trained stands beside them (nn/low_rank.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "ops/packed_part.h"

namespace lockstep::nn {

/// y = W x + b, where W is unpacked a panel at a time, in the forward and in the backward pass. Its
/// parameter "weight" are the bytes of the part of W that is here, uint8.
class PackedLinearKernel final : public LinearKernel {
 public:
  /// Without values. `bias` may be undefined.
  PackedLinearKernel(ops::PackedPart part, Tensor bytes, Tensor bias);

  Tensor forward(const Tensor& x, const Tensor& drawn) const override;
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& drawn) const override;
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const override;
  bool is_trained() const override { return bias_.defined() && bias_.requires_grad(); }
  void visit_parameters(const ParameterFunction& function) override;
  Tensor take_bias() override;
  Tensor matrix_rows(int64_t first, int64_t count) const override;

 private:
  std::shared_ptr<ops::PackedPart> part_;
  Tensor bytes_, bias_;
};

/// How linears are packed, by the prefix of their parameters' names.
using Packing = std::map<std::string, ops::PackedFormat>;

/// Puts packed products into the model's linears (of a part: those that it has), uninitialised, on
/// their weights' device. To be called before adapters are added, and before any strategy.
void pack_linears(LanguageModel& model, const Packing& packing);

}  // namespace lockstep::nn
