// Rules for keys of other programs (Trainer arguments, DeepSpeed and Accelerate files) and for
// unsupported keys. Each program has its own table of rules.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Output of a rule: settings, problems and warnings.
struct RuleTarget {
  Value& settings;
  Problems& problems;
  std::vector<std::string>& warnings;
  std::string prefix;  // prefix of keys in messages: "fsdp_config."

  void set(const std::string& key, const std::string& text, const Value& from) const;
  void copy(const std::string& key, const Value& from) const;
  void refuse(
      const std::string& name,
      const Value& value,
      const std::string& why,
      const std::string& remedy = "") const;
  /// Returns a target for the keys of a section.
  RuleTarget below(const std::string& section) const;
};

struct KeyRule {
  enum class Kind {
    kRead,     // mapped to configuration keys
    kIgnored,  // accepted without effect; a warning explains why
    kRefused,  // reported as a problem: changes the result, but is not supported
  };
  /// kSwitch: --name without a value means true. kList: --name accepts several values.
  enum class Takes { kValue, kSwitch, kList };
  using Read = void (*)(const RuleTarget& target, const std::string& name, const Value& value);

  std::string_view name;  // "zero_optimization.overlap_comm"; a section's rule covers all its keys
  Kind kind;
  /// Values that have no effect, separated by '|'; "*" matches every value. null never has an
  /// effect.
  std::string_view harmless = "";
  /// For kRead, the target: "parallel.tensor" copies the value to that key; "parallel.zero_stage=1"
  /// is set if the value is true; empty if `read` or the table's reader maps the key. For other
  /// kinds, the reason.
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
/// Applies a rule to a value. `name` is the name in the file. Readers that report several keys in
/// one warning call is_harmless() instead.
void apply_rule(
    const KeyRule& rule, const std::string& name, const Value& value, const RuleTarget& target);
/// Applies the rules to every entry of a map. null is an empty map. `prefix_of_names` is optional
/// in names. An unknown name is a problem that suggests the nearest name.
void apply_rules(
    KeyRules rules, const Value& map, const std::string& prefix_of_names, const RuleTarget& target);

bool is_on(const Value& value);
/// Returns true for null and 1.
bool is_one(const Value& value);

}  // namespace lockstep::config
