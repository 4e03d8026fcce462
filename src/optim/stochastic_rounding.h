// Stochastic rounding from float32 to bfloat16. Rounds up or down with probabilities for which the
// expectation is exact, so that updates smaller than half a bfloat16 step are not lost (Gupta et
// al., "Deep Learning with Limited Numerical Precision", 2015, section 3.1; Zamirai et al.,
// "Revisiting BFloat16 Training", 2020).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Rounds `from` [n] float32 into `to` [n] bfloat16 on the same device. The random bits of an
/// element depend on the seed, the step, the name of its parameter and its index in the parameter,
/// and therefore not on the sharding. `layout` contains the positions of the parameters. Padding
/// between parameters, NaN and Inf are rounded to nearest.
void round_stochastically(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step);

/// Implementation with ATen operations for any device. Used on GPUs and as the reference of the
/// tests.
void round_stochastically_by_tensors(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step);

}  // namespace lockstep::optim
