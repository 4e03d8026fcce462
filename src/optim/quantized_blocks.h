// Runs of numbers in 8 bits, a scale for each block of 256: in loops over host memory, and in
// ATen's operations on any device, with the same codes.
#pragma once

#include <ATen/core/Tensor.h>

#include "optim/dynamic_map.h"

namespace lockstep::optim {

/// out[i] = map.values()[codes[i]] * scales[i / 256]. codes [n] uint8; scales [n / 256, rounded up]
/// and out [n] float32; one device, contiguous.
void widen_blocks(
    const DynamicMap& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& out);
/// Each block's scale is its largest magnitude, and each code that of the nearest value.
void round_blocks(
    const DynamicMap& map,
    const at::Tensor& values,
    const at::Tensor& codes,
    const at::Tensor& scales);

/// The same in ATen's operations.
void widen_blocks_by_tensors(
    const DynamicMap& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& out);
void round_blocks_by_tensors(
    const DynamicMap& map,
    const at::Tensor& values,
    const at::Tensor& codes,
    const at::Tensor& scales);

}  // namespace lockstep::optim
