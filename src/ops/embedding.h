// Embedding lookup whose gradient is summed in float32.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Representation of the weight's gradient on the CPU.
enum class EmbeddingGradient {
  kTable,  // [V, C]
  kRows,   // sparse: only the rows that were looked up. For weights that receive a second, dense
           // gradient in the same backward pass; autograd adds these rows to it in place
};

/// Returns the rows of weight [V, C] for int64 ids of any shape, as [..., C]. The gradient of each
/// token is summed over its occurrences in float32 and rounded once. Row `padding_row` gets no
/// gradient; -1: no such row. Throws Error (data) that names an id outside [0, V) (on the CPU; a
/// GPU asserts).
Tensor embedding(
    const Tensor& weight,
    const Tensor& ids,
    int64_t padding_row = -1,
    EmbeddingGradient form = EmbeddingGradient::kTable);

}  // namespace lockstep::ops
