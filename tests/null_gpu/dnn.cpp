// The attention part of cuDNN. Graph descriptors accept any attribute, and executing a graph is a
// kernel.
#include <algorithm>

#include <cudnn.h>

#include "null_gpu/machine.h"
#include "null_gpu/report.h"

namespace {
struct Handle {
  cudaStream_t stream = nullptr;
};
}  // namespace

extern "C" {

size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
  return "an error of the null GPU's cuDNN";
}
void cudnnGetLastErrorString(char* text, size_t length) {
  std::fill_n(text, std::min<size_t>(length, 1), '\0');
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = reinterpret_cast<Handle*>(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(
    cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new char;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<char*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(
    cudnnBackendDescriptor_t,
    cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t,
    int64_t,
    const void*) {
  return CUDNN_STATUS_SUCCESS;
}
/// Returns one element, filled with zeros.
cudnnStatus_t cudnnBackendGetAttribute(
    const cudnnBackendDescriptor_t,
    cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t type,
    int64_t wanted,
    int64_t* count,
    void* elements) {
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR && elements != nullptr && wanted > 0) {
    const size_t bytes =
        type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_DOUBLE || type == CUDNN_TYPE_VOID_PTR ? 8
        : type == CUDNN_TYPE_CHAR || type == CUDNN_TYPE_BOOLEAN                              ? 1
                                                                                             : 4;
    std::fill_n(static_cast<char*>(elements), bytes, '\0');
  }
  if (count != nullptr) {
    *count = 1;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(
    cudnnHandle_t handle, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  const std::unique_lock lock(null_gpu::mutex());
  null_gpu::count("launches");
  null_gpu::add_work(
      null_gpu::stream_of(reinterpret_cast<Handle*>(handle)->stream), "cudnnBackendExecute");
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
