// Allocates and frees the memory of existing tensors.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Allocates or frees the memory of a tensor whose storage is not shared with other tensors. All
/// views of the tensor, including those saved for a backward pass, are affected.
void set_allocated(const at::Tensor& tensor, bool allocated);

/// Returns a parameter of the given size, type and device that has no memory, for make_flat_units.
at::Tensor unallocated_parameter(
    at::IntArrayRef shape, at::TensorOptions options, bool requires_grad);

/// Returns the bytes of a contiguous tensor in host memory.
inline std::span<std::byte> storage_bytes(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace lockstep::parallel
