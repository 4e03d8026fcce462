#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// The bytes of a contiguous tensor in host memory.
inline std::span<std::byte> storage_bytes(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace lockstep::parallel
