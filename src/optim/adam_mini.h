// Adam-mini (Zhang et al., "Adam-mini: Use fewer learning rates to gain more", 2024, algorithm 1):
// AdamW with one second moment per block of a parameter, the mean of the block's squares. A block
// is a head of queries or keys, a row of any other matrix (one output or one token), or a whole
// vector.
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) mean of the block's g^2
//   w -= lr * weight_decay * w;  w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// The update rules define the blocks (UpdateRule::block). State: exp_avg, with the shape of the
/// parameter, and exp_avg_sq [blocks], replicated on all ranks. Each step sums over the shards
/// once.
std::unique_ptr<Optimizer> make_adam_mini(const OptimizerOptions& options);

}  // namespace lockstep::optim
