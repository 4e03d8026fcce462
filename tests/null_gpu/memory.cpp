// Memory of simulated devices: addresses that fault on host access, and counts of used bytes.
// Pinned host memory is real.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "null_gpu/machine.h"
#include "null_gpu/order.h"
#include "null_gpu/report.h"

namespace null_gpu {
namespace {

constexpr size_t kPage = size_t{2} << 20;  // allocation granularity of devices

size_t whole_pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

struct Physical {
  int device = 0;
  size_t bytes = 0;
  int maps = 0;
  bool is_released = false;
};

struct Memory {
  std::map<uintptr_t, Range> ranges;
  std::map<uintptr_t, Physical*> mapped;
  std::map<int, int64_t> used;
  std::map<uintptr_t, std::vector<char>> contents;
};
Memory& memory() {
  static Memory* const memory = new Memory;
  return *memory;
}

/// The peak of used bytes, in a file of eight bytes that other processes can read while this one
/// runs.
int64_t& told_peak() {
  static int64_t* const peak = [] {
    const char* const rank = std::getenv("RANK");
    const std::string path = folder() + "/peak-" + (rank == nullptr ? "0" : rank);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0666);
    void* shared = MAP_FAILED;
    if (file >= 0 && ::ftruncate(file, sizeof(int64_t)) == 0) {
      shared = ::mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    return shared == MAP_FAILED ? new int64_t{0} : static_cast<int64_t*>(shared);
  }();
  return *peak;
}

bool charge(int device, size_t bytes) {
  int64_t& used = memory().used[device];
  if (used + static_cast<int64_t>(bytes) > device_memory()) {
    return false;
  }
  used += static_cast<int64_t>(bytes);
  highest("device_bytes", used);
  told_peak() = std::max(told_peak(), used);
  return true;
}

void* address_space(size_t bytes) {
  void* const begin =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

void keep(void* begin, size_t bytes, Kind kind, int device) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  memory().ranges[address] = {address, bytes, kind, device};
}

/// The host accessed device memory.
void on_fault(int, siginfo_t* info, void*) {
  if (mutex().try_lock()) {
    const Range* const range = range_of(info->si_addr);
    if (range != nullptr && range->kind != Kind::kPinned) {
      mutex().unlock();
      char text[128];
      std::snprintf(
          text,
          sizeof text,
          "the host accessed memory of GPU %d at %p",
          range->device,
          info->si_addr);
      broken(text);
    }
    mutex().unlock();
  }
  std::fprintf(stderr, "null GPU: a fault at %p, by %s\n", info->si_addr, told(site()).c_str());
  std::signal(SIGSEGV, SIG_DFL);  // the access faults again and ends the process
}

void watch_faults() {
  static const bool is_watched = [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGSEGV, &action, nullptr);
    return true;
  }();
  static_cast<void>(is_watched);
}

}  // namespace

const Range* range_of(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto next = memory().ranges.upper_bound(at);
  if (next == memory().ranges.begin()) {
    return nullptr;
  }
  const Range& range = std::prev(next)->second;
  return at < range.begin + range.bytes ? &range : nullptr;
}

void* allocate(int device, size_t bytes) {
  watch_faults();
  const size_t whole = whole_pages(bytes);
  if (!charge(device, whole)) {
    return nullptr;
  }
  void* const begin = address_space(whole);
  if (begin != nullptr) {
    keep(begin, whole, Kind::kDevice, device);
  }
  return begin;
}

bool release(void* begin) {
  const auto found = memory().ranges.find(reinterpret_cast<uintptr_t>(begin));
  if (found == memory().ranges.end() || found->second.kind != Kind::kDevice) {
    return false;
  }
  memory().used[found->second.device] -= static_cast<int64_t>(found->second.bytes);
  forget_order(begin, found->second.bytes);
  ::munmap(begin, found->second.bytes);
  memory().ranges.erase(found);
  return true;
}

void add_pinned(void* begin, size_t bytes) {
  keep(begin, bytes, Kind::kPinned, current_device());
}

bool remove_pinned(void* begin) {
  const auto found = memory().ranges.find(reinterpret_cast<uintptr_t>(begin));
  if (found == memory().ranges.end() || found->second.kind != Kind::kPinned) {
    return false;
  }
  forget_order(begin, found->second.bytes);
  memory().ranges.erase(found);
  return true;
}

void remember(const void* begin, size_t bytes, const void* content) {
  forget(begin, bytes);
  if (bytes >= kLeastRemembered && bytes <= kMostRemembered) {
    const auto* const text = static_cast<const char*>(content);
    memory().contents[reinterpret_cast<uintptr_t>(begin)].assign(text, text + bytes);
  }
}

void forget(const void* memory_begin, size_t bytes) {
  auto& contents = memory().contents;
  const auto begin = reinterpret_cast<uintptr_t>(memory_begin);
  for (auto at = contents.lower_bound(begin - std::min(begin, kMostRemembered));
       at != contents.end() && at->first < begin + bytes;) {
    at = at->first + at->second.size() > begin ? contents.erase(at) : std::next(at);
  }
}

std::vector<char> remembered(const void* begin, size_t bytes) {
  const auto found = memory().contents.find(reinterpret_cast<uintptr_t>(begin));
  return found != memory().contents.end() && found->second.size() == bytes ? found->second
                                                                           : std::vector<char>{};
}

int64_t used_memory(int device) {
  return memory().used[device];
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaMalloc(void** result, size_t bytes) {
  watch_libtorch();
  std::unique_lock lock(mutex());
  count("cudaMalloc");
  if (!may_wait("cudaMalloc", nullptr)) {
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  *result = bytes == 0 ? nullptr : allocate(current_device(), bytes);
  return answer(bytes > 0 && *result == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* begin) {
  std::unique_lock lock(mutex());
  if (begin == nullptr) {
    return cudaSuccess;
  }
  count("cudaFree");
  if (!may_wait("cudaFree", nullptr)) {
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  if (!release(begin)) {
    refused("cudaFree of memory that is not from cudaMalloc");
    return answer(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** result, size_t bytes, unsigned) {
  std::unique_lock lock(mutex());
  count("cudaHostAlloc");
  if (!may_wait("cudaHostAlloc", nullptr)) {
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  *result = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  add_pinned(*result, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* begin) {
  std::unique_lock lock(mutex());
  if (begin != nullptr && !remove_pinned(begin)) {
    refused("cudaFreeHost of memory that is not from cudaHostAlloc");
    return answer(cudaErrorInvalidValue);
  }
  std::free(begin);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* begin, size_t bytes, unsigned) {
  std::unique_lock lock(mutex());
  count("cudaHostRegister");
  if (range_of(begin) != nullptr) {
    return answer(cudaErrorHostMemoryAlreadyRegistered);
  }
  if (number_setting("PINS", 1) == 0) {
    return answer(cudaErrorMemoryAllocation);
  }
  add_pinned(begin, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* begin) {
  std::unique_lock lock(mutex());
  return answer(remove_pinned(begin) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  std::unique_lock lock(mutex());
  *total = static_cast<size_t>(device_memory());
  *free_bytes = static_cast<size_t>(device_memory() - used_memory(current_device()));
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  std::unique_lock lock(mutex());
  *attributes = {};
  const Range* const range = range_of(address);
  if (range == nullptr) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    return cudaSuccess;
  }
  attributes->type = range->kind == Kind::kPinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = range->device;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = range->kind == Kind::kPinned ? const_cast<void*>(address) : nullptr;
  return cudaSuccess;
}

// ---- Virtual memory of the driver API: reserved addresses, physical memory, and mappings

CUresult cuMemGetAllocationGranularity(
    size_t* granularity, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *granularity = kPage;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(
    CUdeviceptr* result, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  std::unique_lock lock(mutex());
  watch_faults();
  void* const begin = address_space(bytes);
  if (begin == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  keep(begin, bytes, Kind::kReserved, current_device());
  *result = reinterpret_cast<CUdeviceptr>(begin);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr begin, size_t bytes) {
  std::unique_lock lock(mutex());
  memory().ranges.erase(begin);
  ::munmap(reinterpret_cast<void*>(begin), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(
    CUmemGenericAllocationHandle* handle,
    size_t bytes,
    const CUmemAllocationProp* properties,
    unsigned long long) {
  watch_libtorch();
  std::unique_lock lock(mutex());
  count("cuMemCreate");
  const int device = properties->location.id;
  if (bytes % kPage != 0) {
    refused("cuMemCreate of a size that is not a multiple of a page");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!charge(device, bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{device, bytes});
  return CUDA_SUCCESS;
}

static void let_go(Physical* physical) {
  if (physical->is_released && physical->maps == 0) {
    memory().used[physical->device] -= static_cast<int64_t>(physical->bytes);
    delete physical;
  }
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  std::unique_lock lock(mutex());
  auto* const physical = reinterpret_cast<Physical*>(handle);
  physical->is_released = true;
  let_go(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(
    CUdeviceptr begin,
    size_t bytes,
    size_t,
    CUmemGenericAllocationHandle handle,
    unsigned long long) {
  std::unique_lock lock(mutex());
  auto* const physical = reinterpret_cast<Physical*>(handle);
  const Range* const range = range_of(reinterpret_cast<void*>(begin));
  if (range == nullptr || range->kind != Kind::kReserved || bytes != physical->bytes ||
      memory().mapped.count(begin) != 0) {
    refused("cuMemMap of an address range that is not reserved or already mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++physical->maps;
  memory().mapped[begin] = physical;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr begin, size_t bytes) {
  std::unique_lock lock(mutex());
  if (!may_wait("cuMemUnmap", nullptr)) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  forget_order(reinterpret_cast<void*>(begin), bytes);
  auto& mapped = memory().mapped;
  for (auto at = mapped.lower_bound(begin); at != mapped.end() && at->first < begin + bytes;) {
    --at->second->maps;
    let_go(at->second);
    at = mapped.erase(at);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp*, CUmemGenericAllocationHandle) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
