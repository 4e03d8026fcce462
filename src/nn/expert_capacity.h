// Expert capacity: maximum number of tokens of a document that an expert processes (Lepikhin et
// al., "GShard", 2020, section 2.2; Fedus et al., "Switch Transformers", 2021, section 2.2).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;
class ForwardContext;

/// For a document of n non-padding tokens, an expert accepts the first max(1, ceil(factor n k / E))
/// tokens that chose it, in document order; k is the number of experts per token. The dropped
/// tokens therefore depend only on the document and its prefix, not on the other rows of the
/// micro-batch.
struct ExpertCapacity {
  double factor = 1;  // positive
  /// Sums over the ranks that hold slices of the same rows; null: this rank has whole rows.
  std::function<void(const Tensor&)> sum_over_sequence = nullptr;
};

/// Choices that fit within the experts' capacity.
struct WithinCapacity {
  Tensor kept;     // [N, k] bool; also false for padding
  Tensor dropped;  // float64 scalar: dropped choices of non-padding tokens on this rank
};

/// Applies the capacity to `chosen` [N, k] int64, the experts of the pass's tokens out of `count`
/// experts. `places` [T] int64: positions of this rank's T tokens in the whole sequence. Every rank
/// that holds a slice of the rows must call.
WithinCapacity within_capacity(
    const ExpertCapacity& capacity,
    const Tensor& chosen,
    int64_t count,
    const Tensor& places,
    const ForwardContext& context);

}  // namespace lockstep::nn
