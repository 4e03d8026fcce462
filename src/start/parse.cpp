// Parses options with CLI11.
#include "start/parse.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "config/core/scalar.h"

namespace lockstep::start {

CLI::Validator between(double low, double high) {
  const auto problem = [low, high](const std::string& word) {
    const auto value = config::to_double(word);
    return value && *value >= low && *value <= high
               ? std::string()
               : fmt::format("{} is not a number from {:g} to {:g}", word, low, high);
  };
  return {problem, fmt::format("FLOAT in [{:g} - {:g}]", low, high)};
}

Parsed parse(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the arguments in reverse order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return Parsed::kHelpShown;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kConfig, error.what(), fmt::format("see `{} --help`", app.get_name()));
  }
  return Parsed::kRun;
}

}  // namespace lockstep::start
