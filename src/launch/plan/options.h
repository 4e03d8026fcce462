// A command line read by a table, as argparse reads it for the launchers that we stand in for: '-'
// and '_' are one, unambiguous prefixes (where the original has them), and all that follows the
// program is the program's.
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
                            kFlag = OptionKind::kFlag;  // for the tables

/// One option of a launcher.
struct OptionSpec {
  const char* name;  // with '-' between words
  OptionKind kind;
  const char* fallback;  // its value where it is not given; flags: "" or "1"
  const char* help;
  char letter = 0;
  const char* choices = "";  // the allowed values, separated by '|'; empty: any
};

/// How a launcher reads its options.
struct OptionRules {
  std::string program;             // for messages: "lockstep launch (torchrun)"
  bool prefixes = true;            // an unambiguous beginning of a long option stands for it
  std::string environment_prefix;  // "PET_": defaults come from PET_<NAME>; empty: from nowhere
};

/// What was given. Problems are collected; finish() throws them all at once.
class Options {
 public:
  bool given(const std::string& name) const { return given_.contains(name); }
  /// Given on the command line, or in the environment.
  bool set(const std::string& name) const { return values_.contains(name); }
  const std::string& text(const std::string& name) const;
  bool flag(const std::string& name) const { return text(name) == "1"; }
  /// A whole number of at least `least`; else a problem, and `least`.
  int64_t integer(const std::string& name, int64_t least);
  double seconds(const std::string& name, double least);
  /// The program and its arguments.
  const std::vector<std::string>& rest() const { return rest_; }

  /// A value from a configuration file: it counts where the command line gave none.
  void set_default(const std::string& name, const std::string& value) {
    values_.emplace(name, value);
  }
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void warning(std::string text) { warnings_.push_back(std::move(text)); }
  const std::vector<std::string>& problems() const { return problems_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Error (config) with every problem, where there is one.
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

/// Reads `arguments` up to the program. Unknown options are problems that name the nearest one.
Options parse_options(
    std::span<const OptionSpec> table,
    const OptionRules& rules,
    const std::vector<std::string>& arguments,
    const Environment& environment);

/// The names of the options that stand before the program, and how many of them `table` does not
/// know. Values are skipped by `all`, a table that knows every launcher's options.
struct Recognised {
  std::vector<std::string> unknown;
  int known = 0;
};
Recognised recognise(
    std::span<const OptionSpec> table,
    std::span<const OptionSpec> all,
    bool prefixes,
    const std::vector<std::string>& arguments);

/// `word` is an option with a value that stands in the next word.
bool takes_next_word(std::span<const OptionSpec> table, const std::string& word);

/// A help text: one line an option.
std::string help_text(std::span<const OptionSpec> table);
/// A completion script of our own for "bash", "zsh" or "tcsh".
std::string completion_script(
    std::span<const OptionSpec> table, const std::string& program, const std::string& shell);

/// The parts of `text` between `separator`; an empty text has none.
std::vector<std::string> split(const std::string& text, char separator);

}  // namespace lockstep::launch
