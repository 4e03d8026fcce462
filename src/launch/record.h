// The worker's side of a failure: the error file that the launcher reads, and the exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::launch {

/// Runs `body` as a program's main. What it throws is told on stderr (an error of the configuration
/// by the launcher alone, once for all ranks), written to the file that
/// TORCHELASTIC_ERROR_FILE names (torchelastic's form, with rank, host, step, the chain of contexts
/// and the remedy), and becomes the exit code: of lockstep::Error its kind's; 5 where memory ran
/// out; 1 of anything else. Returns body's own value else.
///
///   int main(int argc, char** argv) { return lockstep::launch::record(argc, argv, train); }
int record(int argc, char** argv, const std::function<int(int, char**)>& body);

/// The training step that an error is recorded with. Any thread.
void set_recorded_step(int64_t step);

/// Writes the error file for the exception that is being handled, where a launcher asked for one,
/// and returns the exit code. To be called in a catch block; record() does.
int record_current_exception();

}  // namespace lockstep::launch
