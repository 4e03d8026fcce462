// Which modules of a model a LoRA configuration names, by PEFT's rules (tuners_utils,
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

/// A regular expression of Python's that means the same here. Error (kConfig) that names `key`
/// where it is none, or has what is read otherwise here: look-behind, named groups, inline flags.
std::regex module_regex(const std::string& key, const std::string& pattern);

/// Whether the name is in the list, or ends in "." and one of it.
bool is_listed(const std::string& module, const std::vector<std::string>& names);

/// Answers for one configuration; its target_modules are given (no default, no all-linear).
class LoraTargets {
 public:
  explicit LoraTargets(const LoraConfig& config);

  /// Of the module of this name, "model.layers.0.self_attn.q_proj".
  bool contains(const std::string& module) const;
  /// Whether exclude_modules or modules_to_save take it out, whatever the targets are.
  bool is_excluded(const std::string& module) const;

 private:
  bool is_in_layers(const std::string& module) const;

  const LoraConfig& config_;
  std::optional<std::regex> target_, excluded_;
  std::vector<std::regex> layer_index_;  // the last group is the index
};

/// Of the patterns that match the module's name, the first, and the patterns' places that matched.
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
