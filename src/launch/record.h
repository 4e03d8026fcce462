// Reports a worker's failure to the launcher, by an error file and the exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::launch {

/// Runs `body` as a program's main function and returns its result. If it throws, prints the
/// exception on stderr and writes it to the file named by TORCHELASTIC_ERROR_FILE, in
/// torchelastic's format with additional fields for rank, host, step, contexts and hint.
/// Configuration errors are printed by the launcher instead, once for all ranks. The exit code is
/// that of the error kind for lockstep::Error, 5 if out of memory, otherwise 1.
///
///   int main(int argc, char** argv) { return lockstep::launch::record(argc, argv, train); }
int record(int argc, char** argv, const std::function<int(int, char**)>& body);

/// Sets the training step that is recorded with errors. May be called on any thread.
void set_recorded_step(int64_t step);

/// Writes the current exception to the error file if a launcher requested one, and returns the exit
/// code. Must be called in a catch block. record() calls it.
int record_current_exception();

}  // namespace lockstep::launch
