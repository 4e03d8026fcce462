// AdamW optimizer with float32 state exp_avg and exp_avg_sq (ops/adamw.h has the formulas).
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Used for all names of AdamW (fused and unfused are the same). The options must be validated.
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options);

}  // namespace lockstep::optim
