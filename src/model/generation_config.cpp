// Reads and writes generation_config.json.
#include "model/generation_config.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "model/known_keys.h"

namespace lockstep::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Keys that are read.
constexpr const char* kRead[] = {
    "eos_token_id",
    "do_sample",
    "temperature",
    "top_p",
    "top_k",
    "max_new_tokens",
    "min_new_tokens"};

/// Returns the keys whose values change the text in transformers, or whose effect is not known.
std::vector<std::string> unsupported_keys(const nlohmann::json& settings) {
  std::vector<std::string> unsupported;
  const auto table = unsupported_generation_keys();
  for (const auto& [key, value] : settings.items()) {
    const std::string& name = key;
    const auto found =
        std::ranges::find_if(table, [&](const UnsupportedKey& row) { return name == row.key; });
    const bool is_known =
        std::ranges::any_of(kRead, [&](const char* read) { return name == read; }) ||
        contains(harmless_generation_keys(), name) ||
        (found != table.end() && value == nlohmann::json::parse(found->neutral));
    if (!value.is_null() && !is_known) {
      unsupported.push_back(name);
    }
  }
  return unsupported;
}

/// The keys of one file.
class SettingsFile {
 public:
  SettingsFile(const nlohmann::json& json, std::string place)
      : json_(json),
        place_(std::move(place)) {
    if (!json.is_object()) {
      throw Error(ErrorKind::kData, fmt::format("{} is not a JSON object", place_));
    }
  }

  std::optional<double> number(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value != nullptr && !value->is_number()) {
      throw wrong(key, "a number");
    }
    return value == nullptr ? std::nullopt : std::optional(value->get<double>());
  }
  std::optional<int64_t> integer(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value != nullptr && !value->is_number_integer()) {
      throw wrong(key, "an integer");
    }
    return value == nullptr ? std::nullopt : std::optional(value->get<int64_t>());
  }
  std::vector<int64_t> integers(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      return {};
    }
    const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
    if (!std::ranges::all_of(list, [](const auto& each) { return each.is_number_integer(); })) {
      throw wrong(key, "an integer or a list of integers");
    }
    return list.get<std::vector<int64_t>>();
  }
  bool is_true(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      throw wrong(key, "true or false");
    }
    return value != nullptr && value->get<bool>();
  }

 private:
  const nlohmann::json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  Error wrong(const char* key, const char* what) const {
    return Error(ErrorKind::kData, fmt::format("{}: {} is not {}", place_, key, what));
  }

  const nlohmann::json& json_;
  std::string place_;
};

OrderedJson ids_as_json(const std::vector<int64_t>& ids) {
  return ids.size() == 1 ? OrderedJson(ids.front()) : OrderedJson(ids);
}

OrderedJson of_model_config(const ModelConfig& config) {
  OrderedJson json{{"_from_model_config", true}};
  if (config.bos_token_id) {
    json["bos_token_id"] = *config.bos_token_id;
  }
  if (!config.eos_token_ids.empty()) {
    json["eos_token_id"] = ids_as_json(config.eos_token_ids);
  }
  if (config.pad_token_id) {
    json["pad_token_id"] = *config.pad_token_id;
  }
  return json;
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& folder) {
  GenerationConfig generation;
  const std::filesystem::path file = folder / kGenerationConfigName;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    return generation;
  }
  generation.text = read_file(file);
  const nlohmann::json json = parse_json(generation.text, file.string());
  const SettingsFile keys(json, file.string());
  generation.eos_token_ids = keys.integers("eos_token_id");
  std::erase_if(generation.eos_token_ids, [](int64_t token) { return token < 0; });
  generation.samples = keys.is_true("do_sample");
  generation.temperature = keys.number("temperature");
  generation.top_p = keys.number("top_p");
  generation.top_k = keys.integer("top_k");
  generation.max_new_tokens = keys.integer("max_new_tokens");
  generation.min_new_tokens = keys.integer("min_new_tokens");
  generation.unsupported = unsupported_keys(json);
  return generation;
}

std::vector<int64_t> stop_tokens(const GenerationConfig& generation, const ModelConfig& config) {
  return generation.eos_token_ids.empty() ? config.eos_token_ids : generation.eos_token_ids;
}

void add_stop_token(GenerationConfig& generation, const ModelConfig& config, int64_t token) {
  std::vector<int64_t> stops = stop_tokens(generation, config);
  if (std::ranges::find(stops, token) != stops.end()) {
    return;
  }
  stops.push_back(token);
  OrderedJson json =
      generation.text.empty() ? of_model_config(config) : OrderedJson::parse(generation.text);
  // With this mark, transformers may derive the settings from config.json again.
  json.erase("_from_model_config");
  json["eos_token_id"] = ids_as_json(stops);
  generation.text = json.dump(2) + "\n";
  generation.eos_token_ids = std::move(stops);
}

std::string to_json(const GenerationConfig& generation, const ModelConfig& config) {
  return generation.text.empty() ? of_model_config(config).dump(2) + "\n" : generation.text;
}

}  // namespace lockstep::model
