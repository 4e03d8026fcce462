// Expert capacity: the maximum number of tokens of a document that an expert processes (Lepikhin et
// al., "GShard", 2020, section 2.2; Fedus et al., "Switch Transformers", 2021, section 2.2).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;
class ForwardContext;

/// For a document of n non-padding tokens, an expert accepts the first max(1, ceil(factor n k / E))
/// tokens that chose it, in document order, where k is the number of experts per token. Which
/// tokens are dropped therefore depends only on the document, not on the other rows of the
/// micro-batch.
struct ExpertCapacity {
  double factor = 1;  // must be positive
  /// Sums a tensor over the ranks that hold slices of the same rows; null: this rank has whole
  /// rows.
  std::function<void(const Tensor&)> sum_over_sequence = nullptr;
};

/// Choices that are within the experts' capacity.
struct WithinCapacity {
  Tensor kept;     // [N, k] bool; also false for padding
  Tensor dropped;  // float64 scalar: number of dropped choices of non-padding tokens on this rank
};

/// Applies the capacity to `chosen` [N, k] int64, the experts that were chosen for the pass's
/// tokens, from `count` experts. `places` [T] int64: positions of this rank's T tokens in the whole
/// sequence. Must be called on every rank that holds a slice of the rows.
WithinCapacity within_capacity(
    const ExpertCapacity& capacity,
    const Tensor& chosen,
    int64_t count,
    const Tensor& places,
    const ForwardContext& context);

}  // namespace lockstep::nn
