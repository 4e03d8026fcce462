// Reads the stacks of a process's threads from outside, without its cooperation, even if it is
// stopped.
#pragma once

#include <string>

#include <sys/types.h>

namespace lockstep::launch {

/// Returns the name, state and frames of every thread. Frames are listed from the innermost one,
/// with source lines if there is debugging information:
///
///   thread 4711 (lockstep-r2, stopped):
///     #0 __futex_abstimed_wait_common (libc.so.6)
///
/// The first thread of the process comes first. Threads with equal frames are listed together.
///
/// Each thread is suspended for the milliseconds that it takes to read its stack; a stopped thread
/// stays stopped. For threads in uninterruptible sleep, the result contains the kernel's
/// description of what they wait for. Never throws. Obstacles (no libdw.so.1, no permission to
/// trace) are described in the result. May take seconds, and may hang together with the kernel, so
/// it should be called in a separate process.
std::string stacks_of(pid_t process);

/// Returns the kernel's state letter of a process: 'R', 'S', 'D' (uninterruptible), 'T' (stopped),
/// 't' (traced) or 'Z'. Returns 0 if the process does not exist.
char state_of(pid_t process);

/// Returns the meaning of a state letter, such as "stopped" or "in uninterruptible sleep".
std::string state_text(char state);

}  // namespace lockstep::launch
