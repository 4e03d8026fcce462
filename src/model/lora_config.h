// PEFT's adapter_config.json of a LoRA adapter: what is trained beside or instead of a model's
// weights (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::model {

/// The file, and that of the tensors beside it.
inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";

/// Which modules: those whose whole name the regular expression matches, or by a list those with
/// one of the names, or whose name ends in "." and one of them.
struct ModuleNames {
  std::string pattern;
  std::vector<std::string> names;

  bool empty() const { return pattern.empty() && names.empty(); }
  bool operator==(const ModuleNames&) const = default;
};

/// Of words that a user typed: one that no module can be called, such as ".*_proj", is a pattern.
/// Error (kConfig), naming `key`, where a list holds one.
ModuleNames parse_module_names(const std::string& key, std::vector<std::string> words);

/// Regular expressions, each with a number; the first that matches the end of a module's name from
/// a dot on counts.
using NumberPatterns = std::vector<std::pair<std::string, double>>;

struct LoraConfig {
  enum class Bias { kNone, kAll, kLoraOnly };
  int64_t r = 8;
  double lora_alpha = 8, lora_dropout = 0;
  ModuleNames target_modules;  // empty: the family's own
  bool targets_all_linear = false;
  ModuleNames exclude_modules;
  std::vector<std::string> modules_to_save;  // trained as they are, whole
  Bias bias = Bias::kNone;                   // which biases are trained
  bool use_rslora = false, use_dora = false, ensure_weight_tying = false;
  std::string init_lora_weights = "true";  // "true", "false", or the name of a way
  std::vector<int64_t> layers_to_transform;
  std::vector<std::string> layers_pattern;
  /// Tokens whose rows are trained alone, by the name of the table; "": the embedding.
  std::map<std::string, std::vector<int64_t>> trainable_tokens;
  NumberPatterns rank_pattern, alpha_pattern;
  std::string task_type;                          // empty: null
  std::string base_model_name_or_path, revision;  // likewise

  bool operator==(const LoraConfig&) const = default;
};

/// Reads the text of an adapter_config.json. Throws one Error (kData) that lists every problem:
/// wrong types, unknown keys, and keys that ask for what is not supported.
LoraConfig parse_lora_config(std::string_view json, std::string_view source);
LoraConfig read_lora_config(const std::filesystem::path& file);
/// The file, with every key that PEFT knows. `in_first`: the model's linears hold [in, out].
std::string to_json(const LoraConfig& config, bool in_first);

}  // namespace lockstep::model
