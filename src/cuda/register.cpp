// liblockstep_cuda.so, the CUDA part of the program, which is loaded at run time. Loading it
// registers libtorch's CUDA backend in the process. The entry points below provide NCCL to comm and
// kernels to ops, and describe the GPUs of the machine. They do not use state of the program,
// because this library would contain a second copy of it.
#include <algorithm>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <cuda_runtime.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/process_group.h"
#include "cuda/loops.h"
#include "cuda/pinned.h"
#include "cuda/step_graph.h"

namespace lockstep::cuda {
namespace {

/// NCCL process group. Its destructor shuts down normally if the rank continues, because no
/// operations are in flight then. During stack unwinding it aborts, because other ranks may never
/// join a pending collective.
class Nccl final : public c10d::ProcessGroupNCCL {
 public:
  Nccl(const comm::Store& store, int rank, int size, c10::intrusive_ptr<Options> options)
      : ProcessGroupNCCL(store, rank, size, std::move(options)) {
    const std::scoped_lock lock(mutex());
    alive().insert(this);
  }
  ~Nccl() override {
    bool is_aborted = false;
    {
      const std::scoped_lock lock(mutex());
      is_aborted = alive().erase(this) == 0;
    }
    try {
      if (is_aborted) {
        return;
      }
      std::uncaught_exceptions() > 0 ? abort() : shutdown();
    } catch (const std::exception&) {  // ignored, because a destructor cannot report it
    }
  }

  /// Aborts each group once. Thread-safe.
  static void abort_all() {
    const std::scoped_lock lock(mutex());
    for (Nccl* group : alive()) {
      try {
        group->abort();
      } catch (const std::exception&) {  // ignored, so that the other groups are also aborted
      }
    }
    alive().clear();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::set<Nccl*>& alive() {
    static std::set<Nccl*> groups;
    return groups;
  }
};

c10::intrusive_ptr<c10d::Backend> join_nccl(
    const comm::Store& store, int rank, int size, const comm::GroupOptions& options) {
  // High priority, because other ranks wait for communication but not for the computation of this
  // rank.
  auto nccl = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  nccl->timeout = options.timeout;
  if (options.most_blocks > 0) {
    nccl->config.maxCTAs = options.most_blocks;
  }
  auto backend = c10::make_intrusive<Nccl>(store, rank, size, nccl);
  // All ranks create the communicator now. Creating it at the first use would block ranks whose
  // first uses are in a different order, and point-to-point messages would create separate
  // communicators.
  backend->setBoundDeviceId(options.device);
  backend->eagerConnectSingleDevice(options.device);
  return backend;
}

std::string obstacle() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return cudaGetErrorString(error);
  }
  for (int device = 0; device < count; ++device) {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (major * 10 + minor < LOCKSTEP_OLDEST_ARCHITECTURE) {
      const auto dotted = [](int capability) {
        return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
      };
      return "GPU " + std::to_string(device) + " has compute capability " +
             dotted(major * 10 + minor) + ", but this build requires " +
             dotted(LOCKSTEP_OLDEST_ARCHITECTURE) + " and later";
    }
  }
  return count > 0 ? "" : "no GPU is visible";
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" void lockstep_cuda_register(
    void (*set_nccl_factory)(lockstep::comm::BackendFactory factory),
    void (*set_loops)(const lockstep::ops::CudaLoops& loops)) {
  set_nccl_factory(lockstep::cuda::join_nccl);
  lockstep::ops::CudaLoops loops = lockstep::cuda::loops();
  loops.run_aside = lockstep::cuda::run_aside;
  loops.capture = lockstep::cuda::capture;
  loops.pin = lockstep::cuda::pin;
  set_loops(loops);
}

/// Aborts all pending collectives of this process, as if their ranks had failed.
extern "C" void lockstep_cuda_abort() {
  lockstep::cuda::Nccl::abort_all();
}

/// Returns the reason why GPUs cannot be used; empty if they can. Does not create a context.
extern "C" const char* lockstep_cuda_obstacle() {
  static const std::string text = lockstep::cuda::obstacle();
  return text.c_str();
}

/// Writes the 16-byte UUID of a GPU or MIG slice. Returns false if the device does not exist.
extern "C" bool lockstep_cuda_identity(int device, unsigned char* bytes) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return false;
  }
  std::copy_n(reinterpret_cast<const unsigned char*>(properties.uuid.bytes), 16, bytes);
  return true;
}
