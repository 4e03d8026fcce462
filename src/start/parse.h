// The small commands' options: CLI11, with our errors.
#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace lockstep::start {

enum class Parsed { kRun, kHelpShown };

/// For an option's check(): a number from `low` to `high`, which NaN is not, other than for
/// CLI::Range.
CLI::Validator between(double low, double high);

/// Parses the words after the command into what `app`'s options are bound to. --help is printed to
/// stdout. Error (config) with CLI11's message, and where to find help: app's name.
Parsed parse(CLI::App& app, std::vector<std::string> arguments);

}  // namespace lockstep::start
