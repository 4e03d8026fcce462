// Exceptions become one screen of text and an exit code.
#pragma once

#include <functional>

namespace lockstep::cli {

/// Runs `body` and returns its exit code. What it throws is told on standard error, and in the file
/// that a launcher asked for; its kind gives the exit code: Error by its kind, memory that ran out
/// 5, anything else 1.
int report_errors(const std::function<int()>& body);

/// Runs `body`; whatever it throws leaves as an Error.
int with_our_errors(const std::function<int()>& body);

}  // namespace lockstep::cli
