// PEFT's adapter_config.json for LoRA adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large
// Language Models", 2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::model {

/// Names of the configuration file and the tensor file in an adapter folder.
inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";

/// Module selection: a regular expression that matches the full name, or a list of names. A list
/// entry matches a name that equals it or ends in "." followed by the entry.
struct ModuleNames {
  std::string pattern;
  std::vector<std::string> names;

  bool empty() const { return pattern.empty() && names.empty(); }
  bool operator==(const ModuleNames&) const = default;
};

/// Parses user input. A word that cannot be a module name, such as ".*_proj", is a regular
/// expression. Throws Error (kConfig) with `key` if a list contains a regular expression.
ModuleNames parse_module_names(const std::string& key, std::vector<std::string> words);

/// Values by regular expression. The first expression that matches a suffix of the module name,
/// starting at a dot, applies.
using NumberPatterns = std::vector<std::pair<std::string, double>>;

struct LoraConfig {
  enum class Bias { kNone, kAll, kLoraOnly };
  int64_t r = 8;
  double lora_alpha = 8, lora_dropout = 0;
  ModuleNames target_modules;  // empty: the family's default
  bool targets_all_linear = false;
  ModuleNames exclude_modules;
  std::vector<std::string> modules_to_save;  // fully trained modules
  Bias bias = Bias::kNone;                   // biases to train
  bool use_rslora = false, use_dora = false, ensure_weight_tying = false;
  std::string init_lora_weights = "true";  // "true", "false", or a method name
  std::vector<int64_t> layers_to_transform;
  std::vector<std::string> layers_pattern;
  /// Tokens whose rows are trained, by table name; "": the embedding.
  std::map<std::string, std::vector<int64_t>> trainable_tokens;
  NumberPatterns rank_pattern, alpha_pattern;
  std::string task_type;                          // empty: null
  std::string base_model_name_or_path, revision;  // empty: null

  bool operator==(const LoraConfig&) const = default;
};

/// Parses an adapter_config.json. Throws one Error (kData) that lists all problems: wrong types,
/// unknown keys, unsupported features.
LoraConfig parse_lora_config(std::string_view json, std::string_view source);
LoraConfig read_lora_config(const std::filesystem::path& file);
/// Returns the content of adapter_config.json with all of PEFT's keys. `in_first` is true if the
/// model's linear weights are [in, out].
std::string to_json(const LoraConfig& config, bool in_first);

}  // namespace lockstep::model
