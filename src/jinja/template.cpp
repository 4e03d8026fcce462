// Implements Template: conversion of JSON variables, rendering and error locations.
#include "jinja/template.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "jinja/evaluator.h"
#include "jinja/work.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

using Json = nlohmann::ordered_json;

/// Replaces invalid UTF-8 with U+FFFD. All later code requires valid UTF-8.
std::string valid_text(const std::string& text) {
  return text::valid_utf8_prefix(text) == text.size() ? text : text::replace_invalid_utf8(text);
}

Value value_of(const Json& json) {
  if (json.is_null()) {
    return None{};
  }
  if (json.is_boolean()) {
    return json.get<bool>();
  }
  if (json.is_number_float() || json.is_number_unsigned()) {
    if (json.is_number_unsigned()) {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(fmt::format("{} is too large for a template: pass it as a string", number));
      }
      return static_cast<int64_t>(number);
    }
    return json.get<double>();
  }
  if (json.is_number_integer()) {
    return json.get<int64_t>();
  }
  if (json.is_string()) {
    return valid_text(json.get_ref<const std::string&>());
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) {
      items.push_back(value_of(item));
    }
    return make_list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, item] : json.items()) {
    entries.emplace_back(valid_text(key), value_of(item));
  }
  return make_dict(std::move(entries));
}

bool has_generation(const Block& block) {
  return std::any_of(block.begin(), block.end(), [](const Statement& statement) {
    return statement.kind == Statement::Kind::kGenerated || has_generation(statement.body) ||
           has_generation(statement.otherwise);
  });
}

}  // namespace

Template::Template(std::string_view source, std::string place) : place_(std::move(place)) {
  if (const size_t valid = text::valid_utf8_prefix(source); valid < source.size()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: byte {} is not valid UTF-8", place_, valid + 1),
        "save the template as UTF-8");
  }
  try {
    block_ = std::make_shared<const Block>(parse(source));
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, fmt::format("{}, {}", place_, error.message()));
  }
  marks_generation_ = has_generation(*block_);
}

Rendering Template::render(const nlohmann::ordered_json& variables) const {
  const auto globals = std::make_shared<Scope>();
  Evaluator evaluator(globals);
  try {
    const int64_t before = Work::held();
    for (const auto& [name, value] : variables.items()) {
      globals->set(name, value_of(value));
    }
    const Work work(Work::held() - before);
    return evaluator.run(*block_);
  } catch (const Error& error) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}, line {}: {}", place_, evaluator.line(), error.message()));
  }
}

}  // namespace lockstep::jinja
