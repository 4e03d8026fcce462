// AdamW as an Optimizer: state exp_avg and exp_avg_sq, float32 (ops/adamw.h has the formulas).
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Under every name of AdamW (fused or not is one here). The options are taken as checked.
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options);

}  // namespace lockstep::optim
