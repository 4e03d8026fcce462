// Room that a mixture's experts have for the tokens of a document (Lepikhin et al., "GShard", 2020,
// section 2.2; Fedus et al., "Switch Transformers", 2021, section 2.2).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;
class ForwardContext;

/// Of a document of n tokens that are no padding an expert takes ceil(factor n k / E), at least
/// one, k being the experts of a token: the first ones that chose it, in the document's order. So
/// what is dropped depends on nothing but the document and what stands before, and not on which
/// rows share a micro-batch.
struct ExpertCapacity {
  double factor = 1;  // above 0
  /// Adds numbers up over the ranks that hold parts of the same rows; null: whole rows are here.
  std::function<void(const Tensor&)> sum_over_sequence = nullptr;
};

/// Which choices an expert has room for.
struct WithinCapacity {
  Tensor kept;     // [N, k] bool; false of padding too
  Tensor dropped;  // float64 scalar: the choices of tokens here that are no padding and found none
};

/// `chosen` [N, k] int64: the experts of the pass's tokens, each of which `count` there are.
/// `places` [T] int64: where in the whole sequence the T positions that are here stand. Every rank
/// that holds a part of the rows must call.
WithinCapacity within_capacity(
    const ExpertCapacity& capacity,
    const Tensor& chosen,
    int64_t count,
    const Tensor& places,
    const ForwardContext& context);

}  // namespace lockstep::nn
