// AdEMAMix (Pagliardini et al., "The AdEMAMix Optimizer: Better, Faster, Older", 2024, algorithm
// 1): AdamW with a second, slow moving average of the gradients. With g = gradient * gradient_scale
// and t = step:
//   m  = beta1 * m + (1 - beta1) * g,  s = beta3(t) * s + (1 - beta3(t)) * g
//   v  = beta2 * v + (1 - beta2) * g * g
//   w -= lr * ((m / (1 - beta1^t) + alpha(t) * s) / (sqrt(v / (1 - beta2^t)) + epsilon) +
//              weight_decay * w)
// alpha(t) increases linearly to alpha over ademamix_t_alpha steps. beta3(t) increases from beta1
// to beta3 over ademamix_t_beta3 steps such that the half-life of the average grows linearly. 0
// steps: the final value from the start.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// State: exp_avg, exp_avg_slow and exp_avg_sq, float32.
std::unique_ptr<Optimizer> make_ademamix(const OptimizerOptions& options);

/// Return alpha(t) and beta3(t) for step t, which is counted from 1.
double ademamix_alpha(const AdEMAMixOptions& options, int64_t step);
double ademamix_beta3(const AdEMAMixOptions& options, double beta1, int64_t step);

}  // namespace lockstep::optim
