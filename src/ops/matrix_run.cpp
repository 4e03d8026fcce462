// Runs AMX matrix products on all threads of a rank.
#include "ops/matrix_run.h"

#include "ops/cpu/host_loops.h"
#include "ops/cpu/jobs.h"
#include "ops/cpu/machine.h"

namespace lockstep::ops {

bool fits_matrix_kernel(const at::Tensor& side) {
#if defined(__x86_64__)
  return matrix_unit() >= MatrixUnit::kAmx && has_host_loops(side) &&
         side.scalar_type() == at::kBFloat16 && side.numel() > 0;
#else
  (void)side;
  return false;
#endif
}

kernel::Operand operand(const at::Tensor& matrix, kernel::Depth depth) {
  return {matrix.const_data_ptr(), matrix.size(1), depth};
}

#if defined(__x86_64__)
void run(const kernel::MatrixProduct& product) {
  const kernel::MatrixScratch scratch = kernel::scratch_of(product);
  at::Tensor memory;
  uint8_t* left = nullptr;
  if (scratch.left_bytes > 0) {
    memory = at::empty({scratch.left_bytes + kLine}, at::kByte);
    left = aligned_to_line(memory.data_ptr<uint8_t>());
    over_jobs(kernel::left_parts(product), 0, [&](int64_t first, int64_t last, void*) {
      kernel::lay_out_left(product, first, last, left);
    });
  }
  over_jobs(
      kernel::column_parts(product),
      scratch.thread_bytes,
      [&](int64_t first, int64_t last, void* thread) {
        kernel::multiply(product, first, last, left, thread);
      });
}
#else
void run(const kernel::MatrixProduct&) {}
#endif

}  // namespace lockstep::ops
