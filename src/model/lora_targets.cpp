// Implements module matching by PEFT's rules.
#include "model/lora_targets.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/name_pattern.h"

namespace lockstep::model {
namespace {

/// PEFT's pattern for the layer index: the first number preceded by two name components.
constexpr const char* kLayerIndex = R"(.*?\.[^.]*\.(\d+)\.)";

std::optional<std::regex> regex_of(const std::string& key, const ModuleNames& modules) {
  return modules.pattern.empty() ? std::nullopt : std::optional(module_regex(key, modules.pattern));
}

}  // namespace

std::regex module_regex(const std::string& key, const std::string& pattern) {
  for (size_t at = pattern.find("(?"); at != std::string::npos; at = pattern.find("(?", at + 1)) {
    const char next = at + 2 < pattern.size() ? pattern[at + 2] : ' ';
    if (next != ':' && next != '=' && next != '!') {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{}: '{}' has a group '(?{}', which is not supported", key, pattern, next),
          "the supported groups are (?:...), (?=...) and (?!...)");
    }
  }
  return parse_regex(key, pattern);
}

bool is_listed(const std::string& module, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return module == name || module.ends_with("." + name);
  });
}

LoraTargets::LoraTargets(const LoraConfig& config)
    : config_(config),
      target_(regex_of("lora.target_modules", config.target_modules)),
      excluded_(regex_of("lora.exclude_modules", config.exclude_modules)) {
  if (config.layers_pattern.empty()) {
    layer_index_.emplace_back(kLayerIndex);
  }
  for (const std::string& pattern : config.layers_pattern) {
    layer_index_.push_back(
        module_regex("lora.layers_pattern", "(?:^|.*?\\.)(?:" + pattern + ")\\.(\\d+)\\."));
  }
}

bool LoraTargets::is_in_layers(const std::string& module) const {
  const std::vector<int64_t>& wanted = config_.layers_to_transform;
  if (wanted.empty()) {
    return true;
  }
  std::smatch found;
  for (const std::regex& index : layer_index_) {
    if (std::regex_search(module, found, index, std::regex_constants::match_continuous)) {
      const std::string number = found[found.size() - 1].str();
      return std::any_of(wanted.begin(), wanted.end(), [&](int64_t layer) {
        return std::to_string(layer) == number;
      });
    }
  }
  return false;
}

bool LoraTargets::is_excluded(const std::string& module) const {
  if (excluded_ ? std::regex_match(module, *excluded_)
                : is_listed(module, config_.exclude_modules.names)) {
    return true;
  }
  const std::vector<std::string>& saved = config_.modules_to_save;
  return std::any_of(saved.begin(), saved.end(), [&](const std::string& name) {
    // Matches the module and modules inside it: "(^|.*\.)name($|\..*)".
    const std::string dotted = "." + module + ".";
    return dotted.find("." + name + ".") != std::string::npos;
  });
}

bool LoraTargets::contains(const std::string& module) const {
  if (is_excluded(module)) {
    return false;
  }
  if (target_) {
    return std::regex_match(module, *target_);
  }
  const std::vector<std::string>& names = config_.target_modules.names;
  return std::find(names.begin(), names.end(), module) != names.end() ||
         (is_listed(module, names) && is_in_layers(module));
}

PatternTable::PatternTable(const std::string& key, const NumberPatterns& patterns) {
  for (const auto& [pattern, value] : patterns) {
    patterns_.emplace_back(module_regex(key, "(?:.*\\.)?(?:" + pattern + ")"), value);
  }
}

PatternMatch PatternTable::find(const std::string& module) const {
  PatternMatch match;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (std::regex_match(module, patterns_[i].first)) {
      match.value = match.value.value_or(patterns_[i].second);
      match.matched.push_back(i);
    }
  }
  return match;
}

}  // namespace lockstep::model
