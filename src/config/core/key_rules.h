// Rules for keys of other programs (Trainer arguments, DeepSpeed and accelerate files) and for
// unsupported keys. Each program has a table of rules.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// What a rule writes to: settings of ours, problems, warnings.
struct RuleTarget {
  Value& settings;
  Problems& problems;
  std::vector<std::string>& warnings;
  std::string prefix;  // of the key, for messages: "fsdp_config."

  void set(const std::string& key, const std::string& text, const Value& from) const;
  void copy(const std::string& key, const Value& from) const;
  void refuse(
      const std::string& name,
      const Value& value,
      const std::string& why,
      const std::string& remedy = "") const;
  /// The same, for the keys of a section.
  RuleTarget below(const std::string& section) const;
};

struct KeyRule {
  enum class Kind {
    kRead,     // becomes keys of ours
    kIgnored,  // accepted; a warning says why it does nothing here
    kRefused,  // a problem: it would change the result, and is not done here
  };
  enum class Takes { kValue, kSwitch };  // kSwitch: --name alone is true
  using Read = void (*)(const RuleTarget& target, const std::string& name, const Value& value);

  std::string_view name;  // "zero_optimization.overlap_comm"; a section's covers what is below it
  Kind kind;
  /// Values that ask for nothing, joined by '|'; "*" is every value, and null always is one.
  std::string_view harmless = "";
  /// kRead: "parallel.tensor" takes the value as it is, and "parallel.zero_stage=1" stands for
  /// true; empty where `read` or the table's reader maps it. Else the reason why not.
  std::string_view text = "";
  Takes takes = Takes::kValue;
  Read read = nullptr;
};
using KeyRules = std::span<const KeyRule>;

constexpr KeyRule read_by(std::string_view name, KeyRule::Read read) {
  return {.name = name, .kind = KeyRule::Kind::kRead, .read = read};
}

/// nullptr where the table has no such name.
const KeyRule* find_rule(KeyRules rules, std::string_view name);
/// Whether the value asks for nothing.
bool is_harmless(const KeyRule& rule, const Value& value);
/// Does what the rule says of a value; `name` is as the file has it. Of several keys that do
/// nothing a reader may want one line: then it asks is_harmless() itself.
void apply_rule(
    const KeyRule& rule, const std::string& name, const Value& value, const RuleTarget& target);
/// Of every entry of a map (null: none); `prefix_of_names` may stand before a name. An unknown one
/// is a problem with the nearest name.
void apply_rules(
    KeyRules rules, const Value& map, const std::string& prefix_of_names, const RuleTarget& target);

bool is_on(const Value& value);
/// null or 1.
bool is_one(const Value& value);

}  // namespace lockstep::config
