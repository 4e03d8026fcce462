// liblockstep_cuda.so: what of CUDA the program needs, opened at run time. Loading it makes
// libtorch's CUDA side known to the process; the entry point below offers NCCL to comm.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/process_group.h"

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

// The program's own set_nccl_factory comes as an argument: this library must not hold a second copy
// of comm.
extern "C" void lockstep_cuda_register(
    void (*set_nccl_factory)(lockstep::comm::NcclFactory factory)) {
  set_nccl_factory(join_nccl);
}
