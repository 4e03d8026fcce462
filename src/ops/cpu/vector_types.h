// Tensor checks and accessors for the loops of vector.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/host_loops.h"

namespace lockstep::ops {

/// Returns true if the row loops support x: float32 or bfloat16, and has_host_loops().
inline bool has_vector_loops(const at::Tensor& x) {
  return has_host_loops(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

/// Returns a pointer to the tensor's elements; null if the tensor is undefined.
template <class T>
const T* elements(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* mutable_elements(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

}  // namespace lockstep::ops
