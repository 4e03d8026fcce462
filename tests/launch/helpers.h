// The test program plays other parts when it is started with a first argument "--part": a worker, a
// supervisor. So the tests run real processes without a program of their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/system/process.h"

namespace lockstep::launch::testing {

/// What a run of a program gave.
struct Ran {
  ExitStatus status;
  std::string output, error_output;
  double seconds = 0;
};

/// Runs argv to its end, with `environment` (NAME=VALUE) added. `during`, where given, is called
/// with its pid once `marker` stands in its stdout or stderr.
Ran run(
    const std::vector<std::string>& argv,
    const std::vector<std::string>& environment = {},
    const std::string& marker = "",
    const std::function<void(pid_t)>& during = {});

/// argv of this test program in `part` with more arguments.
std::vector<std::string> part(const std::string& part, const std::vector<std::string>& more = {});

/// Runs `lockstep::launch::supervise` in a process of its own, N workers of `sh -c script`.
Ran supervise_script(
    int workers,
    const std::string& script,
    const std::string& marker = "",
    const std::function<void(pid_t)>& during = {});

/// How many processes carry this test process's tag: workers that were left behind.
int processes_left(const std::string& needle);

/// A text that no other process has in its environment.
std::string unique_mark();

/// The parts; register more in a test file by a static object.
using Part = std::function<int(int argc, char** argv)>;
struct RegisterPart {
  RegisterPart(const std::string& name, Part body);
};

}  // namespace lockstep::launch::testing
