// Implements typed access to JSON values. Errors contain file and key.
#include "text/models/fields.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {

bool Field::is_null() const {
  return value_->is_null();
}
bool Field::is_object() const {
  return value_->is_object();
}
bool Field::is_string() const {
  return value_->is_string();
}

Error Field::error(std::string_view problem, std::string remedy) const {
  if (remedy.empty()) {
    remedy = "fix the file, or save it again with transformers' save_pretrained";
  }
  return Error(ErrorKind::kData, fmt::format("{} {}", place_, problem), std::move(remedy));
}

void Field::wrong_kind(std::string_view wanted) const {
  throw error(fmt::format("should be {}, but is {}", wanted, value_->type_name()));
}

std::string Field::string() const {
  if (!value_->is_string()) {
    wrong_kind("a string");
  }
  return value_->get<std::string>();
}

bool Field::boolean() const {
  if (!value_->is_boolean()) {
    wrong_kind("true or false");
  }
  return value_->get<bool>();
}

int64_t Field::integer() const {
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX)) {
    wrong_kind("a whole number");
  }
  return value_->get<int64_t>();
}

double Field::number() const {
  if (!value_->is_number()) {
    wrong_kind("a number");
  }
  return value_->get<double>();
}

char32_t Field::character() const {
  const std::u32string characters = to_code_points(string());
  if (characters.size() != 1) {
    throw error("should be one character");
  }
  return characters[0];
}

std::vector<Field> Field::list() const {
  if (!value_->is_array()) {
    wrong_kind("a list");
  }
  std::vector<Field> fields;
  fields.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    fields.emplace_back((*value_)[i], fmt::format("{}[{}]", place_, i));
  }
  return fields;
}

void Field::each(const std::function<void(const std::string&, const Field&)>& entry) const {
  if (!value_->is_object()) {
    wrong_kind("an object");
  }
  for (const auto& [key, value] : value_->items()) {
    entry(key, Field(value, fmt::format("{}[\"{}\"]", place_, key)));
  }
}

std::optional<Field> Field::find(std::string_view key) const {
  if (!value_->is_object()) {
    wrong_kind("an object");
  }
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) {
    return std::nullopt;
  }
  const bool top = place_.ends_with(':');
  return Field(*found, fmt::format("{}{}{}", place_, top ? " " : ".", key));
}

Field Field::at(std::string_view key) const {
  std::optional<Field> found = find(key);
  if (!found) {
    throw error(fmt::format("lacks the key \"{}\"", key));
  }
  return *std::move(found);
}

std::string Field::string_or(std::string_view key, std::string otherwise) const {
  const std::optional<Field> found = find(key);
  return found ? found->string() : std::move(otherwise);
}

bool Field::boolean_or(std::string_view key, bool otherwise) const {
  const std::optional<Field> found = find(key);
  return found ? found->boolean() : otherwise;
}

int64_t Field::integer_or(std::string_view key, int64_t otherwise) const {
  const std::optional<Field> found = find(key);
  return found ? found->integer() : otherwise;
}

std::optional<std::string> Field::optional_string(std::string_view key) const {
  const std::optional<Field> found = find(key);
  return found ? std::optional(found->string()) : std::nullopt;
}

}  // namespace lockstep::text
