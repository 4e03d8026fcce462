// Reads and writes PEFT's adapter_config.json.
#include "model/lora_config.h"

#include <algorithm>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"
#include "base/text.h"
#include "model/config_reader.h"

namespace lockstep::model {
namespace {

using nlohmann::json;

constexpr const char* kPeftVersion = "0.21.2";
constexpr double kMost = 1e9;
constexpr size_t kLongest = 1 << 16;
constexpr const char* kAllLinear = "all-linear";

/// Keys with PEFT's defaults. Other values are not supported.
const json& refused_keys() {
  static const json keys{
      {"alora_invocation_tokens", nullptr},
      {"arrow_config", nullptr},
      {"corda_config", nullptr},
      {"eva_config", nullptr},
      {"kasa_config", nullptr},
      {"layer_replication", nullptr},
      {"lora_bias", false},
      {"lora_ga_config", nullptr},
      {"megatron_config", nullptr},
      {"monteclora_config", nullptr},
      {"target_parameters", nullptr},
      {"use_bdlora", nullptr},
      {"use_qalora", false},
      {"velora_config", nullptr}};
  return keys;
}

/// Keys that are written with these values and otherwise ignored.
const json& idle_keys() {
  static const json keys{
      {"auto_mapping", nullptr},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"loftq_config", json::object()},
      {"megatron_core", "megatron.core"},
      {"peft_version", kPeftVersion},
      {"qalora_group_size", 16},
      {"runtime_config", nullptr}};
  return keys;
}

const std::vector<std::string>& read_keys() {
  static const std::vector<std::string> keys{
      "alpha_pattern",
      "base_model_name_or_path",
      "bias",
      "ensure_weight_tying",
      "exclude_modules",
      "init_lora_weights",
      "layers_pattern",
      "layers_to_transform",
      "lora_alpha",
      "lora_dropout",
      "peft_type",
      "modules_to_save",
      "r",
      "rank_pattern",
      "revision",
      "target_modules",
      "task_type",
      "trainable_token_indices",
      "use_dora",
      "use_rslora"};
  return keys;
}

bool asks_for_nothing(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

void check_keys(ConfigReader& reader) {
  std::vector<std::string> known = read_keys();
  for (const json* keys : {&refused_keys(), &idle_keys()}) {
    for (const auto& [key, value] : keys->items()) {
      known.push_back(key);
    }
  }
  for (const auto& [key, value] : reader.object().items()) {
    if (refused_keys().contains(key)) {
      if (!asks_for_nothing(value) && value != refused_keys().at(key)) {
        reader.problem(key, fmt::format("{} is not supported", shown(value)));
      }
    } else if (std::find(known.begin(), known.end(), key) == known.end()) {
      reader.problem(key, "unknown key." + did_you_mean(key, known));
    }
  }
}

/// Reads a string or a list of strings.
std::vector<std::string> one_or_more(ConfigReader& reader, const char* key) {
  if (reader.has(key) && reader.object().at(key).is_string()) {
    return {reader.object().at(key).get<std::string>()};
  }
  return reader.texts(key, kLongest);
}

/// Reads a string as a regular expression or a list of names.
ModuleNames module_names(ConfigReader& reader, const char* key) {
  ModuleNames result;
  if (reader.has(key) && reader.object().at(key).is_string()) {
    result.pattern = reader.object().at(key).get<std::string>();
  } else {
    result.names = reader.texts(key, kLongest);
  }
  return result;
}

NumberPatterns patterns(ConfigReader& reader, const char* key) {
  NumberPatterns result;
  if (!reader.has(key)) {
    return result;
  }
  const json& object = reader.object().at(key);
  if (!object.is_object()) {
    reader.problem(key, fmt::format("{} is not an object of numbers", shown(object)));
    return result;
  }
  for (const auto& [pattern, value] : object.items()) {
    if (value.is_number() && value > 0 && value < kMost) {
      result.emplace_back(pattern, value.get<double>());
    } else {
      reader.problem(
          key, fmt::format("{} of '{}' is not a positive number", shown(value), pattern));
    }
  }
  return result;
}

/// Reads a list of tokens for the embedding, or an object of lists by table name.
std::map<std::string, std::vector<int64_t>> tokens_of_tables(
    ConfigReader& reader, const char* key) {
  const auto integers = [&](ConfigReader& from, const char* name) {
    return from.integers(name, 0, std::numeric_limits<int32_t>::max(), kLongest);
  };
  std::map<std::string, std::vector<int64_t>> result;
  if (!reader.has(key) || !reader.object().at(key).is_object()) {
    const std::vector<int64_t> tokens = integers(reader, key);
    return tokens.empty() ? result : std::map<std::string, std::vector<int64_t>>{{"", tokens}};
  }
  ConfigReader tables(reader.object().at(key), std::string(key) + ".", reader.problems());
  for (const auto& [table, tokens] : tables.object().items()) {
    result[table] = integers(tables, table.c_str());
  }
  return result;
}

json tokens_json(const std::map<std::string, std::vector<int64_t>>& tables) {
  const auto of_embedding = tables.find("");
  return of_embedding != tables.end() ? json(of_embedding->second)
         : tables.empty()             ? json(nullptr)
                                      : json(tables);
}

LoraConfig::Bias bias_of(ConfigReader& reader) {
  const std::string text = reader.text("bias", "none");
  if (text != "none" && text != "all" && text != "lora_only") {
    reader.problem("bias", fmt::format("'{}' is not one of none, all, lora_only", text));
  }
  return text == "all"         ? LoraConfig::Bias::kAll
         : text == "lora_only" ? LoraConfig::Bias::kLoraOnly
                               : LoraConfig::Bias::kNone;
}

std::string initial_weights(ConfigReader& reader) {
  const char* key = "init_lora_weights";
  if (reader.has(key) && reader.object().at(key).is_boolean()) {
    return reader.object().at(key).get<bool>() ? "true" : "false";
  }
  return lower_case(reader.text(key, "true"));
}

json names_json(const ModuleNames& modules) {
  return !modules.pattern.empty() ? json(modules.pattern)
         : modules.names.empty()  ? json(nullptr)
                                  : json(modules.names);
}

template <class List>
json list_or_null(const List& list) {
  return list.empty() ? json(nullptr) : json(list);
}

json text_or_null(const std::string& text) {
  return text.empty() ? json(nullptr) : json(text);
}

/// Writes integers as 16 rather than 16.0.
json number_json(double value) {
  const bool is_whole = value == static_cast<double>(static_cast<int64_t>(value));
  return is_whole ? json(static_cast<int64_t>(value)) : json(value);
}

json patterns_json(const NumberPatterns& patterns) {
  json result = json::object();
  for (const auto& [pattern, value] : patterns) {
    result[pattern] = number_json(value);
  }
  return result;
}

}  // namespace

ModuleNames parse_module_names(const std::string& key, std::vector<std::string> words) {
  const auto is_pattern = [](const std::string& word) {
    return word.find_first_of("*+?()[]{}|\\^$") != std::string::npos;
  };
  if (words.size() == 1 && is_pattern(words.front())) {
    return {std::move(words.front()), {}};
  }
  for (const std::string& word : words) {
    if (word.empty() || is_pattern(word)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{}: '{}' is in a list of names, but is not a name", key, word),
          "use only names, or one regular expression that matches full names");
    }
  }
  return {"", std::move(words)};
}

LoraConfig parse_lora_config(std::string_view text, std::string_view source) {
  const json object = parse_json(text, source);
  if (!object.is_object()) {
    throw Error(ErrorKind::kData, fmt::format("{} is not a JSON object", source));
  }
  std::vector<std::string> problems;
  ConfigReader reader(object, "", problems);
  check_keys(reader);
  LoraConfig config;
  if (const std::string type = reader.text("peft_type", "LORA"); type != "LORA") {
    reader.problem("peft_type", fmt::format("{} is not supported; only LORA is", type));
  }
  for (const char* key : {"r", "lora_alpha", "lora_dropout", "bias"}) {
    if (object.contains(key) && object.at(key).is_null()) {
      reader.problem(key, "is null");
    }
  }
  config.r = reader.integer("r", config.r, 1, 1 << 30);
  config.lora_alpha = reader.number("lora_alpha", config.lora_alpha, 0, kMost);
  config.lora_dropout = reader.number("lora_dropout", 0, 0, 1 - 1e-9);
  config.target_modules = module_names(reader, "target_modules");
  if (lower_case(config.target_modules.pattern) == kAllLinear) {
    config.target_modules = {};
    config.targets_all_linear = true;
  }
  config.exclude_modules = module_names(reader, "exclude_modules");
  config.modules_to_save = reader.texts("modules_to_save", kLongest);
  config.bias = bias_of(reader);
  config.use_rslora = reader.boolean("use_rslora", false);
  config.use_dora = reader.boolean("use_dora", false);
  config.ensure_weight_tying = reader.boolean("ensure_weight_tying", false);
  config.init_lora_weights = initial_weights(reader);
  config.layers_to_transform =
      reader.integers("layers_to_transform", 0, std::numeric_limits<int32_t>::max(), kLongest);
  config.layers_pattern = one_or_more(reader, "layers_pattern");
  config.trainable_tokens = tokens_of_tables(reader, "trainable_token_indices");
  config.rank_pattern = patterns(reader, "rank_pattern");
  config.alpha_pattern = patterns(reader, "alpha_pattern");
  config.task_type = reader.text("task_type", "");
  config.base_model_name_or_path = reader.text("base_model_name_or_path", "");
  config.revision = reader.text("revision", "");
  if (!problems.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} is not supported: {}", source, fmt::join(problems, "; ")),
        "save the adapter with PEFT without these options, or merge it with PEFT");
  }
  return config;
}

LoraConfig read_lora_config(const std::filesystem::path& file) {
  return parse_lora_config(read_file(file, ErrorKind::kData, kLongestJson), file.string());
}

std::string to_json(const LoraConfig& config, bool in_first) {
  json object = refused_keys();
  object.update(idle_keys());
  object.erase("runtime_config");
  object["peft_type"] = "LORA";
  object["fan_in_fan_out"] = in_first;
  object["r"] = config.r;
  object["lora_alpha"] = number_json(config.lora_alpha);
  object["lora_dropout"] = config.lora_dropout;
  object["target_modules"] =
      config.targets_all_linear ? json(kAllLinear) : names_json(config.target_modules);
  object["exclude_modules"] = names_json(config.exclude_modules);
  object["modules_to_save"] = list_or_null(config.modules_to_save);
  object["bias"] = config.bias == LoraConfig::Bias::kAll        ? "all"
                   : config.bias == LoraConfig::Bias::kLoraOnly ? "lora_only"
                                                                : "none";
  object["use_rslora"] = config.use_rslora;
  object["use_dora"] = config.use_dora;
  object["ensure_weight_tying"] = config.ensure_weight_tying;
  const std::string& init = config.init_lora_weights;
  object["init_lora_weights"] =
      init == "true" || init == "false" ? json(init == "true") : json(init);
  object["layers_to_transform"] = list_or_null(config.layers_to_transform);
  object["layers_pattern"] = list_or_null(config.layers_pattern);
  object["trainable_token_indices"] = tokens_json(config.trainable_tokens);
  object["rank_pattern"] = patterns_json(config.rank_pattern);
  object["alpha_pattern"] = patterns_json(config.alpha_pattern);
  object["task_type"] = text_or_null(config.task_type);
  object["base_model_name_or_path"] = text_or_null(config.base_model_name_or_path);
  object["revision"] = text_or_null(config.revision);
  return object.dump(2);
}

}  // namespace lockstep::model
