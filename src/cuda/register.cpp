// liblockstep_cuda.so: what of CUDA the program needs, opened at run time. Loading it makes
// libtorch's CUDA side known to the process; the entries below offer NCCL to comm and loops to ops,
// and say what a machine's GPUs are. They hold no state of the program's: this library must not
// have a second copy of it.
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

/// Ends as what is around it does: a rank that goes on has nothing left in flight, and one that
/// throws lets go of a collective that the others may never come to.
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
    } catch (const std::exception&) {  // there is nobody to tell, and the process goes on
    }
  }

  /// Of any thread. Each of them once.
  static void abort_all() {
    const std::scoped_lock lock(mutex());
    for (Nccl* group : alive()) {
      try {
        group->abort();
      } catch (const std::exception&) {  // the others are to end nevertheless
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
  // What others wait for goes before what this rank computes.
  auto nccl = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  nccl->timeout = options.timeout;
  if (options.most_blocks > 0) {
    nccl->config.maxCTAs = options.most_blocks;
  }
  auto backend = c10::make_intrusive<Nccl>(store, rank, size, nccl);
  // The communicator is made now, by all: made at the first use, it would hold up ranks whose first
  // uses are in another order, and messages between two ranks would get communicators of their own.
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
      return "GPU " + std::to_string(device) + " is of compute capability " +
             dotted(major * 10 + minor) + ", and this build is for " +
             dotted(LOCKSTEP_OLDEST_ARCHITECTURE) + " and later";
    }
  }
  return count > 0 ? "" : "none is visible";
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

/// Ends all collectives of this process that are under way, as if their ranks had failed.
extern "C" void lockstep_cuda_abort() {
  lockstep::cuda::Nccl::abort_all();
}

/// Why GPUs cannot be used; empty: they can. Makes no context on any.
extern "C" const char* lockstep_cuda_obstacle() {
  static const std::string text = lockstep::cuda::obstacle();
  return text.c_str();
}

/// The 16 bytes by which a GPU, or a slice of one, is known everywhere; false: there is no such.
extern "C" bool lockstep_cuda_identity(int device, unsigned char* bytes) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return false;
  }
  std::copy_n(reinterpret_cast<const unsigned char*>(properties.uuid.bytes), 16, bytes);
  return true;
}
