// Embedding lookup with a gradient summed in float32.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Form of the weight's gradient on the CPU.
enum class EmbeddingGradient {
  kTable,  // [V, C]
  kRows,  // sparse, only the rows looked up: for a weight that gets a second, dense gradient in the
          // same backward pass, to which autograd adds these rows in place
};

/// weight [V, C], ids int64 of any shape -> [..., C]. The gradient of each token is summed over its
/// occurrences in float32 and rounded once. `padding_row` (or -1) gets no gradient. Throws Error
/// (data) for an id outside [0, V) and names it (on the CPU; a GPU asserts).
Tensor embedding(
    const Tensor& weight,
    const Tensor& ids,
    int64_t padding_row = -1,
    EmbeddingGradient form = EmbeddingGradient::kTable);

}  // namespace lockstep::ops
