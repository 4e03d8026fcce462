// Stacks of a process's threads, read from outside without its cooperation, even if it is stopped.
#pragma once

#include <string>

#include <sys/types.h>

namespace lockstep::launch {

/// Returns every thread's name, state and frames, innermost first, with source lines if there is
/// debugging information:
///
///   thread 4711 (lockstep-r2, stopped):
///     #0 __futex_abstimed_wait_common (libc.so.6)
///
/// The process's first thread comes first; threads with equal frames are listed once.
///
/// Each thread is suspended for the milliseconds of its walk; a stopped one stays stopped. For
/// threads in uninterruptible sleep the kernel's description is given. Never throws; obstacles (no
/// libdw.so.1, no permission to trace) are described in the result. It may take seconds and hang
/// with the kernel, so call it in a separate process if that matters.
std::string stacks_of(pid_t process);

/// The kernel's state letter of a process: 'R', 'S', 'D' (uninterruptible), 'T' (stopped), 't'
/// (traced), 'Z'; 0 if it does not exist.
char state_of(pid_t process);

/// Readable form: "stopped", "in uninterruptible sleep" and so on.
std::string state_text(char state);

}  // namespace lockstep::launch
