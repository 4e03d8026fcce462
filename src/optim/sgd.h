// Stochastic gradient descent without momentum, as in torch.optim.SGD: w -= lr * (g + weight_decay
// * w).
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Creates the optimizer, which has no state.
std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options);

}  // namespace lockstep::optim
