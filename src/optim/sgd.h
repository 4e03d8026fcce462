// Gradient descent without momentum, in torch.optim.SGD's form: w -= lr * (g + weight_decay * w).
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// It has no state.
std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options);

}  // namespace lockstep::optim
