// The order of streams: what a kernel, a copy or a collective reads and writes has to come after
// what wrote it, and memory that is given out again after all that used it. Streams, events and the
// host's waits are vector clocks (Mattern, 1989); who calls these functions holds mutex().
#pragma once

#include "null_gpu/machine.h"

namespace null_gpu {

/// Work begins in a stream: it comes after all that this thread's host has waited for, and after
/// what the stream held. In an operation of libtorch's (watch.cpp), it reads what that was given.
void order_work(Stream& stream);
/// A part of memory, of a device or pinned, that the stream's last work reads or writes.
void touch(Stream& stream, const void* begin, size_t bytes, bool is_write, const char* what);
/// A kernel by itself: of what its pointers point to, the first byte. `arguments` as launches give
/// them; a pointer to what is const is read.
void touch_arguments(Stream& stream, const char* kernel, void** arguments);

void merge(Clock& into, const Clock& from);
/// This thread's host was told that what lies before is done.
void host_was_told(const Clock& clock);
/// The host has waited for it; all threads know.
void host_has_waited(const Clock& clock);

/// The range is another's from now on, or nobody's.
void forget_order(const void* begin, size_t bytes);

/// Opens the library that watches libtorch, once; mutex() is not held.
void watch_libtorch();

}  // namespace null_gpu
