// libcuda.so.1: the driver functions that libtorch calls directly.
#include <cuda.h>
#include <dlfcn.h>

#include "null_gpu/machine.h"
#include "null_gpu/report.h"

using namespace null_gpu;

extern "C" {

CUresult cuInit(unsigned) {
  return devices().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(devices().size());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return static_cast<CUresult>(
          cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
  }
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(static_cast<intptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  return cuDevicePrimaryCtxRetain(context, current_device());
}
CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream stream) {
  const std::unique_lock lock(mutex());
  add_work(stream_of(stream), "memset");
  return CUDA_SUCCESS;
}
// Hardware tensor descriptors, which are passed to kernels as arguments.
CUresult cuTensorMapEncodeTiled(
    CUtensorMap*,
    CUtensorMapDataType,
    cuuint32_t,
    void*,
    const cuuint64_t*,
    const cuuint64_t*,
    const cuuint32_t*,
    const cuuint32_t*,
    CUtensorMapInterleave,
    CUtensorMapSwizzle,
    CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name,
    void** entry,
    unsigned,
    unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *entry = ::dlsym(RTLD_DEFAULT, name);
  if (result != nullptr) {
    *result = *entry == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return *entry == nullptr ? answer(cudaErrorSymbolNotFound) : cudaSuccess;
}

}  // extern "C"
