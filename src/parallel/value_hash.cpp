// Hashes the values of tensors on a host or a GPU.
#include "parallel/value_hash.h"

#include <cstddef>

#include "base/hash.h"

namespace lockstep::parallel {

int64_t hash_of_values(const at::Tensor& values) {
  if (values.is_cpu()) {
    return static_cast<int64_t>(
        hash_64({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()}));
  }
  const auto words = values.element_size() % 4 == 0 ? at::kInt : at::kShort;
  return values.view(words).sum(at::kLong).item<int64_t>();
}

}  // namespace lockstep::parallel
