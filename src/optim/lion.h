// Lion optimizer (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2),
// with adam_beta1 and adam_beta2:
//   w -= lr * weight_decay * w
//   w -= lr * sign(beta1 * m + (1 - beta1) * g)
//   m  = beta2 * m + (1 - beta2) * g
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// State: exp_avg, float32.
std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options);

}  // namespace lockstep::optim
