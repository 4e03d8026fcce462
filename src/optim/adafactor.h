// Adafactor (Shazeer and Stern, 2018, algorithms 4 and 5) as configured by transformers' Trainer:
// the given learning rate (scale_parameter and relative_step off), no first moment, epsilon 1e-30,
// clipping at 1, decay t^-0.8. The second moment of a matrix is stored as the means of its rows and
// columns.
//   u = g / sqrt(v),  v = beta v + (1 - beta) (g^2 + 1e-30),  beta = 1 - t^-0.8
//   w -= lr * weight_decay * w;  w -= lr * u / max(1, rms(u))
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// State of a parameter [..., R, C]: exp_avg_sq_row [..., R] and exp_avg_sq_col [..., C],
/// replicated on all ranks. State of a parameter with one dimension: exp_avg_sq. Each step sums
/// over the shards twice.
std::unique_ptr<Optimizer> make_adafactor(const OptimizerOptions& options);

}  // namespace lockstep::optim
