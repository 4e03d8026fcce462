#include "parallel/offload/storage.h"

#include <ATen/ops/empty.h>

namespace lockstep::parallel {

void set_allocated(const at::Tensor& tensor, bool allocated) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t bytes =
      allocated ? static_cast<size_t>(tensor.numel()) * tensor.element_size() : size_t{0};
  if (storage->nbytes() != bytes) {
    storage->set_data_ptr(storage->allocator()->allocate(bytes));
    storage->set_nbytes(bytes);
  }
}

at::Tensor unallocated_parameter(
    at::IntArrayRef shape, at::TensorOptions options, bool requires_grad) {
  at::Tensor parameter = at::empty(shape, options);
  set_allocated(parameter, false);
  return parameter.set_requires_grad(requires_grad);
}

}  // namespace lockstep::parallel
