// Parses the options of small commands with CLI11. Errors have Lockstep's format.
#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace lockstep::start {

enum class Parsed { kRun, kHelpShown };

/// Returns a validator for numbers from `low` to `high`. Unlike CLI::Range, it rejects NaN.
CLI::Validator between(double low, double high);

/// Parses the arguments after the command and sets the variables that are bound to `app`'s options.
/// Prints --help, or candidates for completion, to stdout. Throws Error (config) with CLI11's
/// message and a hint about the help.
Parsed parse(CLI::App& app, std::vector<std::string> arguments);

}  // namespace lockstep::start
