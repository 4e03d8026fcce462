// Tensors whose memory comes and goes.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Gives a tensor that has its storage to itself its memory, or takes it away. Every view of it,
/// saved for a backward pass or not, follows.
void set_allocated(const at::Tensor& tensor, bool allocated);

/// A parameter of the size, type and device asked for, but without memory: for make_flat_units.
at::Tensor unallocated_parameter(
    at::IntArrayRef shape, at::TensorOptions options, bool requires_grad);

/// The bytes of a contiguous tensor in host memory.
inline std::span<std::byte> storage_bytes(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace lockstep::parallel
