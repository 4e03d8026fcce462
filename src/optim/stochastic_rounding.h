// Float32 to bfloat16 by chance: up or down to a neighbour, with the probability that makes the
// mean exact, so that updates smaller than half a step of bfloat16 are not lost (Gupta et al.,
// "Deep Learning with Limited Numerical Precision", 2015, section 3.1; Zamirai et al., "Revisiting
// BFloat16 Training", 2020).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Rounds `from` [n] float32 into `to` [n] bfloat16, on one device. What is drawn for an element
/// follows from seed, step, its parameter's name and its place in the parameter, so that the shards
/// do not show; `layout` says where parameters lie. Values between them, NaN and infinity are
/// rounded to the nearest.
void round_stochastically(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step);

/// The same in ATen's operations, on any device: what runs on GPUs, and the tests' reference.
void round_stochastically_by_tensors(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step);

}  // namespace lockstep::optim
