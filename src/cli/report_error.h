// Reports the errors of commands: one screen of text and an exit code.
#pragma once

#include <functional>

namespace lockstep::cli {

/// Runs `body` and returns its exit code. If it throws, prints the exception on standard error and
/// writes it to the launcher's error file, if requested. The exit code is then that of the kind of
/// Error, 5 if out of memory, otherwise 1.
int report_errors(const std::function<int()>& body);

/// Runs `body` and rethrows any exception as Error.
int with_our_errors(const std::function<int()>& body);

}  // namespace lockstep::cli
