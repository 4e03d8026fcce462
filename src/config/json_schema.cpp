// Generates the JSON schema of configuration files.
#include <nlohmann/json.hpp>

#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/print.h"

namespace lockstep::config {
namespace {

nlohmann::ordered_json schema_of(const Key& key) {
  using json = nlohmann::ordered_json;
  json schema;
  const auto type = [&](const char* name) {
    return key.optional ? json::array({name, "null"}) : json(name);
  };
  switch (key.type) {
    case Key::Type::kSection:
      schema["type"] = "object";
      schema["additionalProperties"] = false;
      break;
    case Key::Type::kBool:
      schema["type"] = type("boolean");
      break;
    case Key::Type::kInteger:
      schema["type"] = type("integer");
      break;
    case Key::Type::kNumber:
      schema["type"] = type("number");
      break;
    case Key::Type::kText:
      schema["type"] = type("string");
      break;
    case Key::Type::kList:
      schema["type"] = json::array({"array", "string"});
      schema["items"] = {{"type", "string"}};
      break;
    case Key::Type::kMap:
      schema["type"] = "object";
      schema["additionalProperties"] = {{"type", "number"}};
      break;
    case Key::Type::kRecords:
      schema["type"] = "array";
      schema["items"] = {{"type", "object"}};
      break;
  }
  if (!key.choices.empty()) {
    schema["enum"] = key.choices;
    if (key.optional) {
      schema["enum"].push_back(nullptr);
    }
  }
  schema["description"] = key.help;
  if (key.type != Key::Type::kSection) {
    schema["default"] = nlohmann::ordered_json::parse(to_json_text(key.default_value));
  }
  return schema;
}

}  // namespace

std::string json_schema() {
  using json = nlohmann::ordered_json;
  json root = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "Lockstep configuration"},
      {"type", "object"},
      {"properties", json::object()}};
  for (const Key& key : all_keys()) {
    json* parent = &root;
    const Path path = split_path(key.name);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      parent = &(*parent)["properties"][path[i]];
    }
    (*parent)["properties"][path.back()] = schema_of(key);
  }
  return root.dump(2) + "\n";
}

}  // namespace lockstep::config
