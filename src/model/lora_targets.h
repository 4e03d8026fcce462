// Matching of module names against a LoRA configuration, following PEFT (tuners_utils,
// check_target_module_exists; utils/other.py, get_pattern_key).
#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "model/lora_config.h"

namespace lockstep::model {

/// Compiles a Python regular expression. Throws Error (kConfig) with `key` if it is invalid or uses
/// features that differ in ECMAScript: look-behind, named groups, inline flags.
std::regex module_regex(const std::string& key, const std::string& pattern);

/// Returns true if the name equals an entry of the list or ends in "." followed by an entry.
bool is_listed(const std::string& module, const std::vector<std::string>& names);

/// Matcher for one configuration. Its target_modules must be resolved: neither the default nor
/// all-linear.
class LoraTargets {
 public:
  explicit LoraTargets(const LoraConfig& config);

  /// Returns true if the configuration selects the module, for example
  /// "model.layers.0.self_attn.q_proj".
  bool contains(const std::string& module) const;
  /// Returns true if exclude_modules or modules_to_save exclude the module, regardless of the
  /// targets.
  bool is_excluded(const std::string& module) const;

 private:
  bool is_in_layers(const std::string& module) const;

  const LoraConfig& config_;
  std::optional<std::regex> target_, excluded_;
  std::vector<std::regex> layer_index_;  // last group: layer index
};

/// First pattern that matches the module name, and the indices of all patterns that match.
struct PatternMatch {
  std::optional<double> value;
  std::vector<size_t> matched;
};
class PatternTable {
 public:
  PatternTable(const std::string& key, const NumberPatterns& patterns);
  PatternMatch find(const std::string& module) const;

 private:
  std::vector<std::pair<std::regex, double>> patterns_;
};

}  // namespace lockstep::model
