#include "ops/cuda_loops.h"

namespace lockstep::ops {
namespace {

CudaLoops& registered() {
  static CudaLoops loops;
  return loops;
}

}  // namespace

void set_cuda_loops(const CudaLoops& loops) {
  registered() = loops;
}

const CudaLoops& cuda_loops() {
  return registered();
}

}  // namespace lockstep::ops
