// Error reporting of commands: one screen of text and an exit code.
#pragma once

#include <functional>

namespace lockstep::cli {

/// Runs `body` and returns its exit code. An exception is printed on standard error and written to
/// the launcher's error file, if requested. The exit code is that of the Error's kind, 5 if out of
/// memory, 1 otherwise.
int report_errors(const std::function<int()>& body);

/// Runs `body` and converts any exception to an Error.
int with_our_errors(const std::function<int()>& body);

}  // namespace lockstep::cli
