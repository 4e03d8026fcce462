// Helpers that run the test program in another role ("--part NAME" as the first argument): a
// worker, a supervisor. The tests thus run real processes without a separate program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/system/process.h"

namespace lockstep::launch::testing {

/// Result of running a program.
struct Ran {
  ExitStatus status;
  std::string output, error_output;
  double seconds = 0;
};

/// Runs argv until it ends, with `environment` (NAME=VALUE) added. `during`, if given, is called
/// with the pid once `marker` appears in stdout or stderr.
Ran run(
    const std::vector<std::string>& argv,
    const std::vector<std::string>& environment = {},
    const std::string& marker = "",
    const std::function<void(pid_t)>& during = {});

/// Returns the argv that runs this test program as `part`, followed by `more`.
std::vector<std::string> part(const std::string& part, const std::vector<std::string>& more = {});

/// Runs `lockstep::launch::supervise` in a separate process with N workers of `sh -c script`.
Ran supervise_script(
    int workers,
    const std::string& script,
    const std::string& marker = "",
    const std::function<void(pid_t)>& during = {});

/// Returns the number of remaining processes with this test process's tag.
int processes_left(const std::string& needle);

/// Returns a string that is in no other process's environment.
std::string unique_mark();

/// Registry of parts. Test files register parts with a static object.
using Part = std::function<int(int argc, char** argv)>;
struct RegisterPart {
  RegisterPart(const std::string& name, Part body);
};

}  // namespace lockstep::launch::testing
