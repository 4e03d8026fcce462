// Option parsing of small commands: CLI11 with Lockstep's errors.
#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace lockstep::start {

enum class Parsed { kRun, kHelpShown };

/// Validator for numbers from `low` to `high`; unlike CLI::Range it rejects NaN.
CLI::Validator between(double low, double high);

/// Parses the words after the command into the variables bound to `app`'s options. --help is
/// printed to stdout. Throws Error (config) with CLI11's message and a pointer to the help.
Parsed parse(CLI::App& app, std::vector<std::string> arguments);

}  // namespace lockstep::start
