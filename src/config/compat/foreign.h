// Configuration files of other fine-tuning programs: Axolotl, LLaMA-Factory, torchtune and TRL.
//
// A program is a table of its keys (axolotl.cpp, llama_factory.cpp, torchtune.cpp; TRL's names are
// accepted everywhere, see core/trl_keys.h). To support another key, add a line to the table.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/core/key_rules.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Pair of texts of a table.
struct ForeignPair {
  std::string_view first, second;
};

struct ForeignProgram {
  std::string_view name;  // "Axolotl"
  /// Dotted keys and their rules. "liger_*" covers all names with that prefix. A key without a rule
  /// that is also a name of Lockstep's keeps its value. Rules with `read` have the target in `text`
  /// for documentation.
  KeyRules rules;
  /// Returns settings that apply if the file does not make them: defaults that differ from
  /// Lockstep's. They may depend on the task that `settings` select.
  std::span<const ForeignPair> (*defaults)(const Value& settings);
  /// Keys that are not read if the command line sets a key of Lockstep's: {theirs, ours}.
  std::span<const ForeignPair> replaced = {};
  /// Differences that no key states.
  std::string_view differs = "";
  /// Reads keys that depend on each other, after the rules.
  void (*finish)(const Value& file, const RuleTarget& target) = nullptr;
};

/// Returns the program whose file this is, or nullptr. A file with sections of Lockstep's is
/// Lockstep's own.
const ForeignProgram* find_program(const Value& file);
/// Returns true if the file has a section of Lockstep's configuration.
bool has_own_section(const Value& file);
std::span<const ForeignProgram* const> foreign_programs();

/// Converts a file to configuration keys. `given` are the keys on the command line. Adds one
/// warning with the number of translated keys, the ignored keys and the program's defaults, and a
/// problem for each reason to refuse keys. With `allow_unknown`, unknown keys are ignored.
Value foreign_settings(
    const ForeignProgram& program,
    const Value& file,
    const std::string& name,
    const std::set<std::string>& given,
    bool allow_unknown,
    Problems& problems,
    std::vector<std::string>& warnings);

/// Returns the program's table for the documentation: "| their key | Lockstep |" lines.
std::string table_of(const ForeignProgram& program);

/// Returns what a file is that is not a configuration, and the hint: a data file or a TOML file by
/// its name, a model's config.json, an adapter_config.json and others by their keys. A file with
/// sections of Lockstep's is a configuration.
std::optional<std::pair<std::string, std::string>> other_kind(const std::filesystem::path& path);
std::optional<std::pair<std::string, std::string>> other_kind(const Value& file);

// For the tables:

/// Meaning of one value: settings ("task.type=preference preference.objective=kto"; may be empty),
/// or the reason why it is refused.
struct ForeignWord {
  std::string_view word, settings, refused = "";
};
void read_words(
    std::span<const ForeignWord> words,
    const RuleTarget& target,
    const std::string& name,
    const Value& value);
template <const auto& kWords>
void read_word(const RuleTarget& target, const std::string& name, const Value& value) {
  read_words(kWords, target, name, value);
}
/// Rule with a reader; `text` documents it.
constexpr KeyRule read_as(std::string_view name, std::string_view text, KeyRule::Read read) {
  return {.name = name, .kind = KeyRule::Kind::kRead, .text = text, .read = read};
}

/// Rule for a key that ForeignProgram::finish reads; `text` documents it.
void read_nothing(const RuleTarget& target, const std::string& name, const Value& value);
constexpr KeyRule finished(std::string_view name, std::string_view text) {
  return read_as(name, text, read_nothing);
}
/// Removes the section lora, with a warning if the file has keys for it.
void drop_adapter(const RuleTarget& target, std::string_view why);

std::string text_in(const Value& file, const Path& path);
/// Returns the values of a list, or the comma-separated words of a scalar.
std::vector<std::string> words_in(const Value& value);
void set_list(
    const RuleTarget& target,
    const std::string& key,
    const std::vector<std::string>& words,
    const Value& from);
/// Returns true if the word names a file, a glob or a folder with data, and not a Hub dataset.
bool names_data_file(const std::string& word);

extern const ForeignProgram kAxolotl, kLlamaFactory, kTorchtune, kTrl;

}  // namespace lockstep::config
