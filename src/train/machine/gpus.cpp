// Finds GPUs and assigns them to ranks.
#include "train/machine/gpus.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/process_group.h"
#include "ops/cuda_loops.h"

namespace lockstep::train {
namespace {

constexpr const char* kCudaLibrary = "liblockstep_cuda.so";

/// Entry points of the library (cuda/register.cpp).
struct CudaLibrary {
  std::string obstacle;  // reason why GPUs cannot be used; empty if they can
  bool (*identity)(int device, unsigned char* bytes) = nullptr;
  void (*abort)() = nullptr;
};

template <class Function>
Function entry(void* library, const char* name) {
  const auto found = reinterpret_cast<Function>(::dlsym(library, name));
  if (found == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("{} does not match this program: {}", kCudaLibrary, ::dlerror()),
        "build both with LOCKSTEP_CUDA=1 make build");
  }
  return found;
}

/// Sets the environment variables that libtorch reads when it initializes CUDA. Values set by the
/// user take precedence, except for the value 1 below.
void set_environment() {
  // 2: after an NCCL error, libtorch aborts the communicators but not the process. The next call
  // then throws, and the error is reported. Launchers set 1, which would end the process.
  const char* const handling = std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  if (handling == nullptr || std::string_view(handling) == "1") {
    ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/1);
  }
  // cuBLAS is only reproducible with workspaces of fixed size.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  // Avoids memory fragmentation by buffers whose sizes change, as with ZeRO.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr) {
    ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  }
}

const CudaLibrary& cuda_library() {
  static const CudaLibrary loaded = [] {
    set_environment();
    CudaLibrary result;
    void* library = ::dlopen(kCudaLibrary, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      result.obstacle = ::dlerror();
      return result;
    }
    using Register =
        void (*)(void (*)(comm::BackendFactory), void (*)(const ops::CudaLoops& loops));
    entry<Register>(library, "lockstep_cuda_register")(comm::set_nccl_factory, ops::set_cuda_loops);
    result.obstacle = entry<const char* (*)()>(library, "lockstep_cuda_obstacle")();
    result.identity = entry<bool (*)(int, unsigned char*)>(library, "lockstep_cuda_identity");
    result.abort = entry<void (*)()>(library, "lockstep_cuda_abort");
    return result;
  }();
  return loaded;
}

}  // namespace

bool shows_gpus(const std::filesystem::path& devices, const char* visible) {
  if (visible != nullptr && (*visible == '\0' || std::string_view(visible).starts_with("-1"))) {
    return false;
  }
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(devices, ignored)) {
    const std::string name = file.path().filename().string();
    const bool is_numbered = name.starts_with("nvidia") && name.size() > 6 &&
                             std::isdigit(static_cast<unsigned char>(name[6])) != 0;
    if (is_numbered || name == "dxg") {  // dxg: GPU under WSL
      return true;
    }
  }
  return false;
}

int visible_gpus() {
  // Skip the CUDA libraries if there are no GPUs. Loading them takes a second and half a gigabyte.
  if (!shows_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES"))) {
    return 0;
  }
  const CudaLibrary& library = cuda_library();
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  const int count = library.obstacle.empty() && hooks.hasCUDA() ? hooks.deviceCount() : 0;
  if (count == 0) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "this machine has GPUs, but none can be used: {}",
            library.obstacle.empty() ? "libtorch initialized CUDA before the library was loaded"
                                     : library.obstacle),
        "build with LOCKSTEP_CUDA=1, fix the reported problem, or set training.use_cpu=true to "
        "train on the CPU");
  }
  return count;
}

int gpu_of(int local_rank, int local_size, int gpus) {
  if (local_rank < gpus) {
    return local_rank;
  }
  if (gpus == 1) {
    return 0;
  }
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format(
          "local rank {} has no GPU: {} are visible, {} ranks run on this machine",
          local_rank,
          gpus,
          local_size),
      "start one rank per GPU, make more GPUs visible with CUDA_VISIBLE_DEVICES, or set "
      "training.use_cpu=true");
}

void claim_gpu(const comm::Store& store, const std::string& identity, int rank) {
  if (store->add("gpu/" + identity, 1) > 1) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("rank {} has the same GPU as another rank: {}", rank, identity),
        "start at most one rank per GPU; show each rank its own GPU or slice, or all GPUs to every "
        "rank (CUDA_VISIBLE_DEVICES); or set training.use_cpu=true");
  }
}

std::string identity_of_gpu(int index) {
  std::array<unsigned char, 16> bytes{};
  if (cuda_library().identity == nullptr || !cuda_library().identity(index, bytes.data())) {
    throw Error(ErrorKind::kEnvironment, fmt::format("GPU {} does not respond", index));
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

void abort_collectives() {
  if (cuda_library().abort != nullptr) {
    cuda_library().abort();
  }
}

void use_device(c10::Device device) {
  if (device.is_cuda()) {
    c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  }
}

}  // namespace lockstep::train
