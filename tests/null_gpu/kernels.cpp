// Kernel registration and launches. Kernels are identified by their registered names; each launch
// is checked and counted.
#include <cstring>
#include <unordered_map>

#include "null_gpu/machine.h"
#include "null_gpu/order.h"
#include "null_gpu/report.h"

namespace null_gpu {
namespace {

struct Kernels {
  std::mutex mutex;  // many libraries register kernels before main()
  std::unordered_map<const void*, const char*> names;
  std::unordered_map<const void*, int> dynamic_shared;
  std::unordered_map<const void*, size_t> variables;
  std::unordered_map<const void*, void*> variable_memory;
};
Kernels& kernels() {
  static Kernels* const kernels = [] {
    auto* const made = new Kernels;
    made->names.reserve(1 << 17);
    return made;
  }();
  return *kernels;
}

const char* name_of(const void* kernel) {
  const std::scoped_lock lock(kernels().mutex);
  const auto found = kernels().names.find(kernel);
  return found == kernels().names.end() ? nullptr : found->second;
}

cudaError_t launch(
    const void* kernel,
    dim3 grid,
    dim3 block,
    void** arguments,
    size_t shared_bytes,
    cudaStream_t handle) {
  const char* const name = name_of(kernel);
  if (name == nullptr) {
    refused("a launch of an unknown kernel");
    return answer(cudaErrorInvalidDeviceFunction);
  }
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || shared_bytes > (227 << 10)) {
    refused(
        std::string(name) + " in " + std::to_string(grid.x) + "x" + std::to_string(grid.y) + "x" +
        std::to_string(grid.z) + " blocks of " + std::to_string(threads));
    return answer(cudaErrorInvalidConfiguration);
  }
  const std::unique_lock lock(mutex());
  Stream& stream = stream_of(handle);
  if (stream.device != current_device()) {
    refused(std::string(name) + " on a stream of another device");
    return answer(cudaErrorInvalidResourceHandle);
  }
  count("launches");
  add_work(stream, name);
  touch_arguments(stream, name, arguments);
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  void* stream = nullptr;
};
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> configurations;
  return configurations;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(
    void**, const char* entry, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  const std::scoped_lock lock(kernels().mutex);
  kernels().names[entry] = name;
}

void __cudaRegisterVar(void**, char* variable, char*, const char*, int, size_t bytes, int, int) {
  const std::scoped_lock lock(kernels().mutex);
  kernels().variables[variable] = bytes;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(
    dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  const Configuration top = configurations().back();
  configurations().pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel,
    dim3 grid,
    dim3 block,
    void** arguments,
    size_t shared_bytes,
    cudaStream_t stream) {
  return launch(
      reinterpret_cast<const void*>(kernel), grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchKernel(
    const void* kernel,
    dim3 grid,
    dim3 block,
    void** arguments,
    size_t shared_bytes,
    cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchCooperativeKernel(
    const void* kernel,
    dim3 grid,
    dim3 block,
    void** arguments,
    size_t shared_bytes,
    cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchKernelExC(
    const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  return launch(
      kernel,
      config->gridDim,
      config->blockDim,
      arguments,
      config->dynamicSmemBytes,
      config->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  if (name_of(kernel) == nullptr) {
    return answer(cudaErrorInvalidDeviceFunction);
  }
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > (227 << 10)) {
    return answer(cudaErrorInvalidValue);
  }
  return answer(name_of(kernel) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void*, int threads, size_t, unsigned) {
  *blocks = threads > 0 ? std::max(1, std::min(32, 2048 / threads)) : 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, const void* kernel, int threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, kernel, threads, shared_bytes, 0);
}

cudaError_t cudaGetSymbolAddress(void** result, const void* symbol) {
  const std::unique_lock lock(mutex());
  const std::scoped_lock registered(kernels().mutex);
  void*& begin = kernels().variable_memory[symbol];
  if (begin == nullptr) {
    begin = allocate(current_device(), std::max<size_t>(1, kernels().variables[symbol]));
  }
  *result = begin;
  return cudaSuccess;
}

}  // extern "C"
