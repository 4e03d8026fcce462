// Table-driven command-line parser with argparse's rules. '-' and '_' are equivalent. Unambiguous
// prefixes of options are accepted if the original launcher accepts them. Everything after the
// program belongs to the program.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

enum class OptionKind { kValue, kFlag };
inline constexpr OptionKind kValue = OptionKind::kValue,
                            kFlag = OptionKind::kFlag;  // short names for the option tables

/// Option of a launcher.
struct OptionSpec {
  const char* name;  // with '-' between words
  OptionKind kind;
  const char* fallback;  // default value; for flags "" or "1"
  const char* help;
  char letter = 0;
  const char* choices = "";  // allowed values, separated by '|'; empty: any value
};

/// Rules for parsing the command line of a launcher.
struct OptionRules {
  std::string program;             // for messages: "lockstep launch (torchrun)"
  bool prefixes = true;            // accept unambiguous prefixes of long options
  std::string environment_prefix;  // "PET_": variables PET_<NAME> are defaults; empty: none are
};

/// Parsed options. Problems are collected, and finish() throws an error with all of them.
class Options {
 public:
  bool given(const std::string& name) const { return given_.contains(name); }
  /// Returns true if the option was given on the command line or in the environment.
  bool set(const std::string& name) const { return values_.contains(name); }
  const std::string& text(const std::string& name) const;
  bool flag(const std::string& name) const { return text(name) == "1"; }
  /// Returns the value as an integer. If it is not an integer of at least `least`, records a
  /// problem and returns `least`.
  int64_t integer(const std::string& name, int64_t least);
  double seconds(const std::string& name, double least);
  /// Returns the program and its arguments.
  const std::vector<std::string>& rest() const { return rest_; }

  /// Sets a value from a configuration file. It is ignored if the command line or environment has a
  /// value.
  void set_default(const std::string& name, const std::string& value) {
    values_.emplace(name, value);
  }
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void warning(std::string text) { warnings_.push_back(std::move(text)); }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Throws Error (config) that lists all problems, if any.
  void finish(const OptionRules& rules) const;

 private:
  friend Options parse_options(
      std::span<const OptionSpec> table,
      const OptionRules& rules,
      const std::vector<std::string>& arguments,
      const Environment& environment);

  std::map<std::string, std::string> values_, fallbacks_;
  std::set<std::string> given_;
  std::vector<std::string> rest_, problems_, warnings_;
};

/// Reads `arguments` up to the program. For an unknown option, adds a problem that suggests the
/// nearest option.
Options parse_options(
    std::span<const OptionSpec> table,
    const OptionRules& rules,
    const std::vector<std::string>& arguments,
    const Environment& environment);

/// Options before the program: the names that `table` does not have, and the number of the others.
/// Option values are skipped according to `all`, the options of all launchers.
struct Recognised {
  std::vector<std::string> unknown;
  int known = 0;
};
Recognised recognise(
    std::span<const OptionSpec> table,
    std::span<const OptionSpec> all,
    bool prefixes,
    const std::vector<std::string>& arguments);

/// Returns true if `word` is an option whose value is the next word.
bool takes_next_word(std::span<const OptionSpec> table, const std::string& word);

/// Returns the help, one option per line.
std::string help_text(std::span<const OptionSpec> table);
/// Returns a completion script for "bash", "zsh" or "tcsh".
std::string completion_script(
    std::span<const OptionSpec> table, const std::string& program, const std::string& shell);

/// Splits `text` at `separator`. An empty string has no parts.
std::vector<std::string> split(const std::string& text, char separator);

}  // namespace lockstep::launch
