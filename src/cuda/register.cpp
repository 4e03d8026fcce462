// liblockstep_cuda.so: what of CUDA the program needs, opened at run time. Loading it makes
// libtorch's CUDA side known to the process; the entry point below offers NCCL to comm and loops to
// ops.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/process_group.h"
#include "cuda/step_graph.h"
#include "cuda/token_loss.h"

namespace {

c10::intrusive_ptr<c10d::Backend> join_nccl(
    const lockstep::comm::Store& store,
    int rank,
    int size,
    const lockstep::comm::GroupOptions& options) {
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = options.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, nccl);
}

}  // namespace

// The program's own registers come as arguments: this library must not hold a second copy of them.
extern "C" void lockstep_cuda_register(
    void (*set_nccl_factory)(lockstep::comm::NcclFactory factory),
    void (*set_loops)(const lockstep::ops::CudaLoops& loops)) {
  set_nccl_factory(join_nccl);
  lockstep::ops::CudaLoops loops = lockstep::cuda::loops();
  loops.run_aside = lockstep::cuda::run_aside;
  loops.capture = lockstep::cuda::capture;
  set_loops(loops);
}
