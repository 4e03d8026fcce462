// Hash of a tensor's values.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Returns a hash that changes with any flipped bit of a contiguous tensor. On a GPU the hash is a
/// sum, which does not require a copy to the host.
int64_t hash_of_values(const at::Tensor& values);

}  // namespace lockstep::parallel
