// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): hidden
// matrices are updated by the orthogonalized momentum, all other parameters by AdamW.
// torch.optim.Muon's formulas, with g = gradient * gradient_scale of a matrix [A, B]:
//   m  = momentum * m + (1 - momentum) * g
//   o  = orthogonal(nesterov ? momentum * m + (1 - momentum) * g : m)
//   w -= lr * weight_decay * w
//   w -= lr * adjust * o,  adjust: original sqrt(max(1, A / B)),
//                          match_rms_adamw 0.2 sqrt(max(A, B)) (Liu et al., "Muon is scalable for
//                          LLM training", 2025, equation 4)
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Returns an approximately orthogonal matrix close to x, [rows, columns] of any scale, by `steps`
/// steps of the quintic Newton-Schulz iteration. Five steps give singular values between about 0.7
/// and 1.2; zeros give zeros. Computes in x's type (torch uses bfloat16), except that float16 is
/// computed in float32, and returns x's type.
at::Tensor orthogonalised(const at::Tensor& x, int64_t steps);

/// Creates an optimizer that uses Muon for segments whose rule has whole_matrix set, which must
/// have two dimensions, and AdamW for all others. Float32 state: momentum_buffer, or exp_avg and
/// exp_avg_sq. A step overwrites the gradients of the matrices with their updates.
std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options);

}  // namespace lockstep::optim
