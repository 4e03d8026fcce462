// Order of streams: a read by a kernel, copy or collective must come after the write, and reused
// memory after all earlier uses. Streams, events and host waits have vector clocks (Mattern, 1989).
// Callers of these functions hold mutex().
#pragma once

#include "null_gpu/machine.h"

namespace null_gpu {

/// Starts work on a stream, ordered after everything that this host thread has waited for and after
/// the stream's earlier work. Inside a libtorch operation (watch.cpp) it reads the operation's
/// inputs.
void order_work(Stream& stream);
/// Records that the stream's last work reads or writes a range of device or pinned memory.
void touch(Stream& stream, const void* begin, size_t bytes, bool is_write, const char* what);
/// Records the accesses of a kernel outside of ATen operations: the first byte at each pointer
/// argument. Pointers to const are reads. `arguments` are those of the launch.
void touch_arguments(Stream& stream, const char* kernel, void** arguments);

void merge(Clock& into, const Clock& from);
/// This host thread knows that the work in `clock` is complete.
void host_was_told(const Clock& clock);
/// The host has waited for the work in `clock`; all threads know it.
void host_has_waited(const Clock& clock);

/// Forgets the accesses of a range that was freed or reused.
void forget_order(const void* begin, size_t bytes);

/// Loads the library that watches libtorch, once. Callers must not hold mutex().
void watch_libtorch();

}  // namespace null_gpu
