// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): hidden
// matrices move along an orthogonal matrix near their momentum, all else as AdamW moves it. With
// torch.optim.Muon's formulas, g = gradient * gradient_scale of a matrix [A, B]:
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

/// An orthogonal matrix near x, to within what five steps reach (singular values from about 0.7 to
/// 1.2), by `steps` of the quintic iteration of Newton and Schulz in x's type, which is what it
/// returns (torch's is in bfloat16); of float16 in float32. x: [rows, columns], of any scale; zeros
/// give zeros.
at::Tensor orthogonalised(const at::Tensor& x, int64_t steps);

/// Muon for the segments whose rule has whole_matrix, of two dims each; AdamW for the others. State
/// momentum_buffer, or exp_avg and exp_avg_sq, float32. A step leaves its change of the matrices in
/// their gradients' memory.
std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options);

}  // namespace lockstep::optim
