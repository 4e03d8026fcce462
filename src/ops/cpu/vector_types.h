// What the loops of vector.h take.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/host_loops.h"

namespace lockstep::ops {

/// Whether loops over rows can have it: float32 or bfloat16, which has_host_loops().
inline bool has_vector_loops(const at::Tensor& x) {
  return has_host_loops(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

/// Its elements; null where there is no tensor.
template <class T>
const T* elements(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* mutable_elements(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

}  // namespace lockstep::ops
