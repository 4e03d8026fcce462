// Linear layers whose weights are packed to 4 or 8 bits (Dettmers et al., "QLoRA", 2023). Packed
// weights are frozen and can be combined with trained adapters (nn/low_rank.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nn/language_model.h"
#include "nn/linear_kernel.h"
#include "ops/packed_part.h"

namespace lockstep::nn {

/// Computes y = W x + b. W is unpacked one panel at a time in the forward and the backward pass.
/// The parameter "weight" (uint8) holds the packed bytes of this rank's slice of W.
class PackedLinearKernel final : public LinearKernel {
 public:
  /// `bytes` is not initialized here. `bias` may be undefined.
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

/// Packing formats of linear layers, by parameter prefix.
using Packing = std::map<std::string, ops::PackedFormat>;

/// Replaces the selected linear layers that this model or stage contains with packed ones,
/// uninitialized, on the device of the weights. Call before adapters are added and before any
/// parallelism strategy.
void pack_linears(LanguageModel& model, const Packing& packing);

}  // namespace lockstep::nn
