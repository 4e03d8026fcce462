// The embedding look-up, whose gradient is summed in float32.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// The form of the weight's gradient, on the CPU.
enum class EmbeddingGradient {
  kTable,  // [V, C]
  kRows,   // a sparse tensor of the rows that were looked up: for a weight that gets another,
           // dense gradient in the same backward pass, which autograd adds these rows to in place
};

/// weight [V, C], ids int64 of any shape -> [..., C]. A token that occurs often has the sum of its
/// rows' gradients made in float32 and rounded once. `padding_row` (or -1) gets no gradient. An id
/// outside [0, V) is an Error (kData) that names it (on the CPU; a GPU asserts).
Tensor embedding(
    const Tensor& weight,
    const Tensor& ids,
    int64_t padding_row = -1,
    EmbeddingGradient form = EmbeddingGradient::kTable);

}  // namespace lockstep::ops
