// Caching allocator for host memory, which is reused between training steps.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Installs a caching allocator for CPU tensors of at least 64 KiB. Freed memory remains in the
/// process, because each training step allocates the same sizes as the previous one, and new memory
/// is slow (page faults, zeroing).
///
/// A tensor gets the smallest sufficient free block, and adjacent free blocks are merged, so that
/// the process needs little more memory than its peak usage. Uses 2 MiB pages if available. The
/// total of used and cached memory is limited to 5/4 of the recent peak usage plus 64 MiB; memory
/// beyond the limit is returned to the system. Call this once, before the first tensor is created.
/// Later calls do nothing.
void keep_host_memory();

/// Returns [count] zeros. Memory that is new to the process is not written, because the system
/// provides zero pages, which are mapped on first use.
at::Tensor new_zeros(int64_t count, const at::TensorOptions& options);

struct HostMemory {
  int64_t used = 0, kept = 0;  // bytes of the blocks in use, and cached free bytes
  int64_t peak = 0;            // recent peak of used bytes
  int64_t mapped = 0;          // number of blocks so far that required memory that was new to the
                               // process
};
HostMemory host_memory();

/// Bytes of CPU tensors of any size that this thread has allocated, minus those that it has freed.
/// This is the memory of a rank that runs as a thread. Counted since keep_host_memory(); always 0
/// without that call.
struct ThreadMemory {
  int64_t now = 0;
  int64_t most = 0;  // peak since the last take_thread_memory()
};
/// Returns this thread's memory and resets the peak.
ThreadMemory take_thread_memory();

}  // namespace lockstep::ops
