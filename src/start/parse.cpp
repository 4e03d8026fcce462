// Parses options with CLI11.
#include "start/parse.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/core/scalar.h"
#include "start/completion.h"

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

namespace {

/// Returns the error for arguments that no option accepts, with the nearest option.
Error unexpected(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  const auto first = std::ranges::find_if(
      words, [](const std::string& word) { return word.starts_with("-") && word.size() > 1; });
  const std::string remedy = fmt::format("see `{} --help`", app.get_name());
  if (first == words.end()) {
    return {
        ErrorKind::kConfig,
        fmt::format("unexpected argument{} {}", words.size() > 1 ? "s" : "", fmt::join(words, " ")),
        remedy};
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  const std::string name = first->substr(0, first->find('='));
  return {
      ErrorKind::kConfig,
      fmt::format("unknown option {}.{}", name, did_you_mean(name, names)),
      remedy};
}

}  // namespace

Parsed parse(CLI::App& app, std::vector<std::string> arguments) {
  if (asks_for_completion(arguments)) {
    fmt::print("{}", complete(app, arguments));
    return Parsed::kHelpShown;
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the arguments in reverse order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return Parsed::kHelpShown;
  } catch (const CLI::ExtrasError&) {
    throw unexpected(app);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kConfig, error.what(), fmt::format("see `{} --help`", app.get_name()));
  }
  return Parsed::kRun;
}

}  // namespace lockstep::start
