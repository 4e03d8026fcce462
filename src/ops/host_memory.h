// Host memory that is kept between the steps of a training run.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// From now on the process's tensors on the CPU of 64 KiB and more lie in memory that stays the
/// process's when they are freed: a training step asks for the same sizes as the one before, and
/// memory that is new to a process costs more time (page faults, zeros) than many operations on it.
/// A tensor gets the shortest free place that has room, and free places that touch are one, so
/// tensors of all sizes take turns in the same memory: a process holds hardly more than the most
/// that was in use at once. On pages of 2 MiB where the system has them. What is in use, kept and
/// free together stays below five quarters of the most that was lately in use, and 64 MiB: what
/// exceeds that goes back to the system. Call it once, before there are tensors; later calls do
/// nothing.
void keep_host_memory();

/// [count] zeros. In kept memory that is new to the process nothing is written, since the system
/// hands it out as zeros: its pages come when they are first used.
at::Tensor new_zeros(int64_t count, const at::TensorOptions& options);

struct HostMemory {
  int64_t used = 0, kept = 0;  // bytes of the blocks in use, and what is kept and free
  int64_t peak = 0;            // the most bytes that were lately in use
  int64_t mapped = 0;          // blocks that took memory new to the process, so far
};
HostMemory host_memory();

/// Bytes of tensors on the CPU, of any size, that this thread has asked for less those that it has
/// freed: what a rank that is a thread holds. Counts from keep_host_memory() on, without which it
/// is 0.
struct ThreadMemory {
  int64_t now = 0;
  int64_t most = 0;  // since it was last asked for
};
/// Begins to look for the most anew.
ThreadMemory take_thread_memory();

}  // namespace lockstep::ops
