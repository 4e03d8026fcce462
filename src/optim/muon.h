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

/// Returns an approximately orthogonal matrix close to x: `steps` of the quintic Newton-Schulz
/// iteration; five steps give singular values between about 0.7 and 1.2. Computes and returns x's
/// type (torch uses bfloat16); float16 is computed in float32. x: [rows, columns], of any scale;
/// zeros give zeros.
at::Tensor orthogonalised(const at::Tensor& x, int64_t steps);

/// Muon for the segments whose rule has whole_matrix, which must have two dims; AdamW for the
/// others. State: momentum_buffer, or exp_avg and exp_avg_sq, float32. A step overwrites the
/// matrices' gradients with their updates.
std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options);

}  // namespace lockstep::optim
