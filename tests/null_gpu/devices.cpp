// Devices of the CUDA runtime: eight H100 of 80 GB, or as set by NULL_GPU_DEVICES.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "null_gpu/machine.h"
#include "null_gpu/report.h"

namespace null_gpu {

std::mutex& mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

const std::vector<int>& devices() {
  static const std::vector<int> devices = [] {
    const int all = static_cast<int>(number_setting("DEVICES", 8));
    std::vector<int> result;
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; visible == nullptr && i < all; ++i) {
      result.push_back(i);
    }
    while (visible != nullptr && *visible != '\0') {
      char* end = nullptr;
      const long index = std::strtol(visible, &end, 10);
      if (end == visible || index < 0 || index >= all) {
        break;
      }
      result.push_back(static_cast<int>(index));
      visible = *end == ',' ? end + 1 : end;
    }
    return result;
  }();
  return devices;
}

int64_t device_memory() {
  static const int64_t bytes = number_setting("MEMORY", int64_t{80} << 30);
  return bytes;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

namespace {
cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}
}  // namespace

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error() = error;
  }
  return error;
}

}  // namespace null_gpu

using null_gpu::answer;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(null_gpu::devices().size());
  return answer(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = null_gpu::current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= static_cast<int>(null_gpu::devices().size())) {
    return answer(cudaErrorInvalidDevice);
  }
  null_gpu::current_device() = device;
  null_gpu::count("cudaSetDevice");
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(null_gpu::last_error(), cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return null_gpu::last_error();
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    default:
      break;
  }
  thread_local char text[64];
  std::snprintf(text, sizeof text, "CUDA error %d", static_cast<int>(error));
  return text;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= static_cast<int>(null_gpu::devices().size())) {
    return answer(cudaErrorInvalidDevice);
  }
  const int number = null_gpu::devices()[static_cast<size_t>(device)];
  cudaDeviceProp told{};
  std::snprintf(told.name, sizeof told.name, "Null GPU 80GB");
  std::memset(told.uuid.bytes, 'n', sizeof told.uuid.bytes);
  told.uuid.bytes[0] = static_cast<char>(number);
  told.pciBusID = number + 1;
  told.totalGlobalMem = static_cast<size_t>(null_gpu::device_memory());
  const auto capability = static_cast<int>(null_gpu::number_setting("CAPABILITY", 90));
  told.major = capability / 10;
  told.minor = capability % 10;
  told.warpSize = 32;
  told.multiProcessorCount = 132;
  told.maxThreadsPerBlock = 1024;
  told.maxThreadsPerMultiProcessor = 2048;
  told.maxBlocksPerMultiProcessor = 32;
  told.maxThreadsDim[0] = told.maxThreadsDim[1] = 1024;
  told.maxThreadsDim[2] = 64;
  told.maxGridSize[0] = 0x7fffffff;
  told.maxGridSize[1] = told.maxGridSize[2] = 65535;
  told.regsPerBlock = told.regsPerMultiprocessor = 65536;
  told.sharedMemPerBlock = 48 << 10;
  told.sharedMemPerBlockOptin = 227 << 10;
  told.sharedMemPerMultiprocessor = 228 << 10;
  told.reservedSharedMemPerBlock = 1 << 10;
  told.totalConstMem = 64 << 10;
  told.l2CacheSize = 50 << 20;
  told.memPitch = 0x7fffffff;
  told.textureAlignment = 512;
  told.unifiedAddressing = 1;
  told.canMapHostMemory = 1;
  told.concurrentKernels = 1;
  told.cooperativeLaunch = 1;
  told.asyncEngineCount = 3;
  told.managedMemory = 1;
  told.hostRegisterSupported = 1;
  told.memoryBusWidth = 5120;
  *properties = told;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp told;
  if (const cudaError_t error = cudaGetDeviceProperties(&told, device); error != cudaSuccess) {
    return error;
  }
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = told.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxBlockDimX:
      *value = told.maxThreadsDim[0];
      break;
    case cudaDevAttrMaxBlockDimY:
      *value = told.maxThreadsDim[1];
      break;
    case cudaDevAttrMaxBlockDimZ:
      *value = told.maxThreadsDim[2];
      break;
    case cudaDevAttrMaxGridDimX:
      *value = told.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
      *value = told.maxGridSize[1];
      break;
    case cudaDevAttrMaxGridDimZ:
      *value = told.maxGridSize[2];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(told.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(told.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(told.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = static_cast<int>(told.reservedSharedMemPerBlock);
      break;
    case cudaDevAttrTotalConstantMemory:
      *value = static_cast<int>(told.totalConstMem);
      break;
    case cudaDevAttrWarpSize:
      *value = told.warpSize;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = told.regsPerBlock;
      break;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = told.regsPerMultiprocessor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = told.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = told.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = told.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrL2CacheSize:
      *value = told.l2CacheSize;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = told.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = told.minor;
      break;
    case cudaDevAttrTextureAlignment:
      *value = static_cast<int>(told.textureAlignment);
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 2619000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = told.memoryBusWidth;
      break;
    case cudaDevAttrPciBusId:
      *value = told.pciBusID;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrStreamPrioritiesSupported:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const int number = null_gpu::devices().at(static_cast<size_t>(device));
  std::snprintf(text, static_cast<size_t>(length), "00000000:%02X:00.0", number + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

}  // extern "C"
