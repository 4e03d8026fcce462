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

/// Destination of a rule: settings, problems, warnings.
struct RuleTarget {
  Value& settings;
  Problems& problems;
  std::vector<std::string>& warnings;
  std::string prefix;  // prefix of the key in messages: "fsdp_config."

  void set(const std::string& key, const std::string& text, const Value& from) const;
  void copy(const std::string& key, const Value& from) const;
  void refuse(
      const std::string& name,
      const Value& value,
      const std::string& why,
      const std::string& remedy = "") const;
  /// Returns the target for the keys of a section.
  RuleTarget below(const std::string& section) const;
};

struct KeyRule {
  enum class Kind {
    kRead,     // mapped to configuration keys
    kIgnored,  // accepted without effect; a warning explains why
    kRefused,  // a problem: it would change the result and is not supported
  };
  enum class Takes { kValue, kSwitch };  // kSwitch: --name without a value means true
  using Read = void (*)(const RuleTarget& target, const std::string& name, const Value& value);

  std::string_view
      name;  // "zero_optimization.overlap_comm"; the rule of a section covers the keys below it
  Kind kind;
  /// Values without effect, separated by '|'; "*" matches every value. null is always harmless.
  std::string_view harmless = "";
  /// kRead: "parallel.tensor" copies the value to that key, and "parallel.zero_stage=1" is set if
  /// the value is true; empty if `read` or the reader of the table maps the key. Otherwise the
  /// reason.
  std::string_view text = "";
  Takes takes = Takes::kValue;
  Read read = nullptr;
};
using KeyRules = std::span<const KeyRule>;

constexpr KeyRule read_by(std::string_view name, KeyRule::Read read) {
  return {.name = name, .kind = KeyRule::Kind::kRead, .read = read};
}

/// Returns nullptr if the table does not contain the name.
const KeyRule* find_rule(KeyRules rules, std::string_view name);
/// Returns true if the value has no effect.
bool is_harmless(const KeyRule& rule, const Value& value);
/// Applies a rule to a value; `name` is the name in the file. A reader that reports several keys in
/// one warning calls is_harmless() itself instead.
void apply_rule(
    const KeyRule& rule, const std::string& name, const Value& value, const RuleTarget& target);
/// Applies the rules to every entry of a map (null: no entries). Names may start with
/// `prefix_of_names`. An unknown name is a problem that suggests the nearest name.
void apply_rules(
    KeyRules rules, const Value& map, const std::string& prefix_of_names, const RuleTarget& target);

bool is_on(const Value& value);
/// Returns true for null and 1.
bool is_one(const Value& value);

}  // namespace lockstep::config
