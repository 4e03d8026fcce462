// The stacks of a process's threads, read from outside: the process need not help, and may be
// stopped.
#pragma once

#include <string>

#include <sys/types.h>

namespace lockstep::launch {

/// Every thread's name, state and frames, innermost first, with source lines where there is
/// debugging information:
///
///   thread 4711 (lockstep-r2, stopped):
///     #0 __futex_abstimed_wait_common (libc.so.6)
///
/// The process's first thread is told first; others that stand at one place, once.
///
/// Each thread is held for the milliseconds of its walk, and one that was stopped stays so. Threads
/// in uninterruptible sleep cannot be held: of them the kernel's own word is given. Never throws;
/// what keeps it from telling (no libdw.so.1, no right to trace) is in the text. It may take
/// seconds, and hang with the kernel: call it in a process of its own where that matters.
std::string stacks_of(pid_t process);

/// The state of a process as the kernel's letter: 'R', 'S', 'D' (uninterruptible), 'T' (stopped),
/// 't' (held by a debugger), 'Z'; 0 where there is none.
char state_of(pid_t process);

/// "stopped", "in uninterruptible sleep" and the like, for people.
std::string state_text(char state);

}  // namespace lockstep::launch
