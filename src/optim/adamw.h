// AdamW optimizer with float32 state exp_avg and exp_avg_sq (ops/adamw.h has the formulas).
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Creates the optimizer for all AdamW option names (fused and unfused are the same). The options
/// must be valid.
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options);

}  // namespace lockstep::optim
