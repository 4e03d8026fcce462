// Worker side of failure reporting: the error file for the launcher, and the exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::launch {

/// Runs `body` as a program's main. An exception is printed on stderr (the launcher prints a
/// configuration error once for all ranks), written to the file in TORCHELASTIC_ERROR_FILE
/// (torchelastic's format plus rank, host, step, contexts and hint), and becomes the exit code: its
/// kind's for lockstep::Error, 5 if out of memory, 1 otherwise. Without an exception, returns
/// body's result.
///
///   int main(int argc, char** argv) { return lockstep::launch::record(argc, argv, train); }
int record(int argc, char** argv, const std::function<int(int, char**)>& body);

/// Sets the training step that is recorded with errors. Callable from any thread.
void set_recorded_step(int64_t step);

/// Writes the error file for the current exception if a launcher requested one, and returns the
/// exit code. Call in a catch block; record() does.
int record_current_exception();

}  // namespace lockstep::launch
