// Reader of typed values from an untrusted JSON object. Collects all problems.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::model {

/// Reads typed values. Each function returns the value of `key`, or the default if the key is
/// missing, null or invalid. Problems are recorded with the key, its value and the allowed values.
class ConfigReader {
 public:
  /// `where` is the prefix of keys in messages: "" or "rope_scaling.".
  ConfigReader(const nlohmann::json& object, std::string where, std::vector<std::string>& problems)
      : object_(object),
        where_(std::move(where)),
        problems_(problems) {}

  bool has(const char* key) const;  // present and not null
  int64_t integer(const char* key, int64_t fallback, int64_t least, int64_t most);
  std::optional<int64_t> optional_integer(const char* key, int64_t least, int64_t most);
  double number(const char* key, double fallback, double least, double most);
  std::optional<double> optional_number(const char* key, double least, double most);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  std::vector<double> numbers(const char* key, double least, double most, size_t longest);
  std::vector<std::string> texts(const char* key, size_t longest);
  /// Reads an integer or a list of integers (eos_token_id).
  std::vector<int64_t> integers(const char* key, int64_t least, int64_t most, size_t longest);
  void problem(std::string_view key, std::string_view what);
  std::vector<std::string>& problems() { return problems_; }
  const nlohmann::json& object() const { return object_; }
  /// Returns the keys of the object that no function has read.
  std::vector<std::string> unread() const;

 private:
  /// Returns the value. If it is not a number within the bounds, records a problem and returns
  /// nullopt.
  std::optional<double> bounded(
      const nlohmann::json& value, std::string_view key, double least, double most);
  std::optional<int64_t> bounded_integer(
      const nlohmann::json& value, std::string_view key, int64_t least, int64_t most);

  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string>& problems_;
  mutable std::set<std::string, std::less<>> read_;
};

/// Formats a value as truncated JSON for error messages.
std::string shown(const nlohmann::json& value);

}  // namespace lockstep::model
