// Implements typed, validated access to config.json values.
#include "model/config_reader.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::model {

using nlohmann::json;

std::string shown(const json& value) {
  constexpr size_t kLongest = 48;
  if (value.is_structured() && value.size() > 16) {
    return fmt::format("{} of {} entries", value.is_array() ? "a list" : "an object", value.size());
  }
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text = text.substr(0, kLongest) + "...";
  }
  return text;
}

bool ConfigReader::has(const char* key) const {
  read_.emplace(key);
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!read_.contains(key)) {
      keys.push_back(key);
    }
  }
  return keys;
}

void ConfigReader::problem(std::string_view key, std::string_view what) {
  problems_.push_back(fmt::format("{}{}: {}", where_, key, what));
}

std::optional<int64_t> ConfigReader::bounded_integer(
    const json& value, std::string_view key, int64_t least, int64_t most) {
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (fits) {
    const auto number = value.get<int64_t>();
    if (number >= least && number <= most) {
      return number;
    }
  }
  problem(key, fmt::format("{} is not an integer from {} to {}", shown(value), least, most));
  return std::nullopt;
}

std::optional<double> ConfigReader::bounded(
    const json& value, std::string_view key, double least, double most) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number >= least && number <= most) {
      return number;
    }
  }
  problem(key, fmt::format("{} is not a number from {} to {}", shown(value), least, most));
  return std::nullopt;
}

std::optional<int64_t> ConfigReader::optional_integer(
    const char* key, int64_t least, int64_t most) {
  return has(key) ? bounded_integer(object_.at(key), key, least, most) : std::nullopt;
}

int64_t ConfigReader::integer(const char* key, int64_t fallback, int64_t least, int64_t most) {
  read_.emplace(key);
  const auto found = object_.find(key);
  if (found == object_.end()) {
    return fallback;
  }
  return bounded_integer(*found, key, least, most).value_or(fallback);
}

std::optional<double> ConfigReader::optional_number(const char* key, double least, double most) {
  return has(key) ? bounded(object_.at(key), key, least, most) : std::nullopt;
}

double ConfigReader::number(const char* key, double fallback, double least, double most) {
  return optional_number(key, least, most).value_or(fallback);
}

bool ConfigReader::boolean(const char* key, bool fallback) {
  if (!has(key)) {
    return fallback;
  }
  const json& value = object_.at(key);
  if (!value.is_boolean()) {
    problem(key, fmt::format("{} is not true or false", shown(value)));
    return fallback;
  }
  return value.get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& fallback) {
  if (!has(key)) {
    return fallback;
  }
  const json& value = object_.at(key);
  if (!value.is_string()) {
    problem(key, fmt::format("{} is not a string", shown(value)));
    return fallback;
  }
  return value.get<std::string>();
}

std::vector<double> ConfigReader::numbers(
    const char* key, double least, double most, size_t longest) {
  std::vector<double> result;
  if (!has(key)) {
    return result;
  }
  const json& value = object_.at(key);
  if (!value.is_array() || value.size() > longest) {
    problem(key, fmt::format("{} is not a list of at most {} numbers", shown(value), longest));
    return result;
  }
  for (const json& entry : value) {
    const auto number = bounded(entry, key, least, most);
    if (!number) {
      return {};
    }
    result.push_back(*number);
  }
  return result;
}

std::vector<std::string> ConfigReader::texts(const char* key, size_t longest) {
  std::vector<std::string> result;
  if (!has(key)) {
    return result;
  }
  const json& value = object_.at(key);
  bool good = value.is_array() && value.size() <= longest;
  for (size_t i = 0; good && i < value.size(); ++i) {
    good = value[i].is_string();
    if (good) {
      result.push_back(value[i].get<std::string>());
    }
  }
  if (!good) {
    problem(key, fmt::format("{} is not a list of at most {} strings", shown(value), longest));
    return {};
  }
  return result;
}

std::vector<int64_t> ConfigReader::integers(
    const char* key, int64_t least, int64_t most, size_t longest) {
  std::vector<int64_t> result;
  if (!has(key)) {
    return result;
  }
  const json& value = object_.at(key);
  if (!value.is_array()) {
    const auto number = bounded_integer(value, key, least, most);
    return number ? std::vector<int64_t>{*number} : result;
  }
  if (value.size() > longest) {
    problem(key, fmt::format("{} has more than {} entries", shown(value), longest));
    return result;
  }
  for (const json& entry : value) {
    const auto number = bounded_integer(entry, key, least, most);
    if (!number) {
      return {};
    }
    result.push_back(*number);
  }
  return result;
}

}  // namespace lockstep::model
