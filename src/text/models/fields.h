// Reader for tokenizer JSON. Each value stores its file and key for error messages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace lockstep::text {

/// JSON value and its location ("tokenizer.json: model.vocab"). This is a view; the JSON must
/// outlive it.
class Field {
 public:
  Field(const nlohmann::json& value, std::string place)
      : value_(&value),
        place_(std::move(place)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const;
  bool is_object() const;
  bool is_string() const;

  /// Return the value. Throw Error if it has another type.
  std::string string() const;
  bool boolean() const;
  int64_t integer() const;
  double number() const;
  /// Returns the value, which must be a string of exactly one code point.
  char32_t character() const;
  std::vector<Field> list() const;
  /// Calls entry(key, value) for each member in key order.
  void each(const std::function<void(const std::string&, const Field&)>& entry) const;

  /// Returns the member with this key. Throws Error if it is missing.
  Field at(std::string_view key) const;
  /// Returns the member with this key, or nullopt if it is missing or null.
  std::optional<Field> find(std::string_view key) const;
  std::string string_or(std::string_view key, std::string otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  std::optional<std::string> optional_string(std::string_view key) const;

  /// Returns an Error about this value: "FILE: KEY <problem>".
  Error error(std::string_view problem, std::string remedy = "") const;

 private:
  [[noreturn]] void wrong_kind(std::string_view wanted) const;
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace lockstep::text
