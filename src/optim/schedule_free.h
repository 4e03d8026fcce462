// Schedule-free AdamW (Defazio et al., "The Road Less Scheduled", 2024, algorithm 1). It needs no
// schedule except a warm-up, because the model is an average x of the iterates z. With g = gradient
// * gradient_scale at y, and t = step:
//   v  = beta2 * v + (1 - beta2) * g * g
//   d  = g / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * y
//   z -= lr * d
//   x  = (1 - c) * x + c * z,  c = r^2 / (the sum of r^2 so far), r the highest rate so far
//   y  = (1 - beta1) * z + beta1 * x
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// The parameters are y during training, and x between put_averages(true) and put_averages(false).
/// x is stored in the master weights, if any. State: z and exp_avg_sq (float32), and averaging [2]
/// (float64), which contains the highest rate and the sum. State that is saved while the averages
/// are in place resumes bit for bit.
std::unique_ptr<Optimizer> make_schedule_free_adamw(const OptimizerOptions& options);

}  // namespace lockstep::optim
