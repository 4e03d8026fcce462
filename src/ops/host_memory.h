// Host memory reused between training steps.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Installs a caching allocator for CPU tensors of 64 KiB and more. Freed memory remains in the
/// process, because each training step allocates the same sizes as the previous one, and memory
/// that is new to the process is slow (page faults, zeroing).
///
/// A tensor gets the shortest sufficient free block, and adjacent free blocks are merged, so the
/// process has little more memory than its peak usage. Uses pages of 2 MiB if the system has them.
/// Used, cached and free memory together is limited to 5/4 of the recent peak usage plus 64 MiB;
/// memory beyond that is returned to the system. Call it once, before any tensor exists; later
/// calls do nothing.
void keep_host_memory();

/// Returns [count] zeros. Cached memory that is new to the process is not written, because the
/// system provides zero pages; its pages are mapped at first use.
at::Tensor new_zeros(int64_t count, const at::TensorOptions& options);

struct HostMemory {
  int64_t used = 0, kept = 0;  // bytes of the blocks in use, and cached free bytes
  int64_t peak = 0;            // recent peak of used bytes
  int64_t mapped = 0;          // number of blocks so far that took memory new to the process
};
HostMemory host_memory();

/// Bytes of CPU tensors, of any size, that this thread has allocated minus those it has freed: the
/// memory of a rank that is a thread. Counted from keep_host_memory() on; without that call always
/// 0.
struct ThreadMemory {
  int64_t now = 0;
  int64_t most = 0;  // peak since the last take_thread_memory()
};
/// Returns this thread's memory and restarts the peak.
ThreadMemory take_thread_memory();

}  // namespace lockstep::ops
