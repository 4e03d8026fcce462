// Stochastic rounding from float32 to bfloat16: rounds up or down with probabilities that make the
// expectation exact, so that updates smaller than half a bfloat16 step are not lost (Gupta et al.,
// "Deep Learning with Limited Numerical Precision", 2015, section 3.1; Zamirai et al., "Revisiting
// BFloat16 Training", 2020).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Rounds `from` [n] float32 into `to` [n] bfloat16, on one device. The random bits of an element
/// depend on the seed, the step, its parameter's name and its index in the parameter, and hence not
/// on the sharding; `layout` gives the positions of the parameters. Padding between parameters, NaN
/// and Inf are rounded to nearest.
void round_stochastically(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step);

/// The same with ATen operations on any device: used on GPUs and as the tests' reference.
void round_stochastically_by_tensors(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step);

}  // namespace lockstep::optim
