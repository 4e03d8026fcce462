// Cross-entropy over the vocabulary, without ever holding the logits of all tokens.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// The target that does not count.
inline constexpr int64_t kIgnoredTarget = -100;

/// The SUM over the rows of -log softmax(hidden weight^T)[target], a float32 scalar. hidden [N, C],
/// weight [V, C] of the same type, targets [N] int64 in [0, V) or -100 (ignored). Logits are made
/// in the type of the weights and the rest in float32, for a run of rows at a time; the gradients
/// of both are made in the same pass, where they are needed, and kept until the backward pass,
/// which may run once. The gradient of the weight is summed in float32. A target out of bounds is
/// an Error (kData), on the CPU; a GPU asserts.
/// `rows_at_once` bounds the rows of a run; 0 lets about 96 MiB of logits be made at a time.
Tensor token_loss(
    const Tensor& hidden, const Tensor& weight, const Tensor& targets, int64_t rows_at_once = 0);

/// The same, written plainly (all logits in float32, gradients by autograd): a reference.
Tensor token_loss_reference(const Tensor& hidden, const Tensor& weight, const Tensor& targets);

/// float64 [3] on the device of `hidden`: the sum of the token losses, the targets that count, and
/// how many of them were the likeliest token. No gradient.
Tensor token_statistics(const Tensor& hidden, const Tensor& weight, const Tensor& targets);

}  // namespace lockstep::ops
