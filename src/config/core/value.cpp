// Operations on configuration trees: lookup, merge, print.
#include "config/core/value.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

std::optional<size_t> index_of(const std::string& name, size_t size) {
  if (name.empty() || name.size() > 9 || !std::all_of(name.begin(), name.end(), ::isdigit)) {
    return std::nullopt;
  }
  const size_t index = std::stoul(name);
  return index < size ? std::optional(index) : std::nullopt;
}

Value* step(Value& value, const std::string& name) {
  if (value.is_list()) {
    const auto index = index_of(name, value.items.size());
    return index ? &value.items[*index] : nullptr;
  }
  return value.find(name);
}

nlohmann::ordered_json to_json(const Value& value) {
  using json = nlohmann::ordered_json;
  switch (value.kind) {
    case Value::Kind::kNull:
      return nullptr;
    case Value::Kind::kList: {
      json list = json::array();
      for (const Value& item : value.items) {
        list.push_back(to_json(item));
      }
      return list;
    }
    case Value::Kind::kMap: {
      json map = json::object();
      for (const Entry& entry : value.entries) {
        map[entry.name] = to_json(entry.value);
      }
      return map;
    }
    case Value::Kind::kScalar:
      break;
  }
  switch (scalar_type(value)) {
    case ScalarType::kNull:
      return nullptr;
    case ScalarType::kBool:
      return *to_bool(value.text);
    case ScalarType::kInteger:
      if (const auto number = to_integer(value.text)) {
        return *number;
      }
      return value.text;
    case ScalarType::kFloat:
      if (const auto number = to_double(value.text); number && std::isfinite(*number)) {
        return *number;
      }
      return value.text;
    case ScalarType::kString:
      break;
  }
  return value.text;
}

}  // namespace

Value Value::scalar(std::string text, bool quoted, Origin origin) {
  Value value = null(std::move(origin));
  value.kind = Kind::kScalar;
  value.text = std::move(text);
  value.quoted = quoted;
  return value;
}

Value Value::null(Origin origin) {
  Value value;
  value.origin = std::move(origin);
  return value;
}

Value Value::list(Origin origin) {
  Value value = null(std::move(origin));
  value.kind = Kind::kList;
  return value;
}

Value Value::map(Origin origin) {
  Value value = null(std::move(origin));
  value.kind = Kind::kMap;
  return value;
}

Value* Value::find(std::string_view name) {
  for (Entry& entry : entries) {
    if (entry.name == name) {
      return &entry.value;
    }
  }
  return nullptr;
}

const Value* Value::find(std::string_view name) const {
  return const_cast<Value*>(this)->find(name);
}

Value& Value::at_or_add(const std::string& name) {
  if (Value* found = find(name)) {
    return *found;
  }
  entries.push_back({name, Value::null(origin)});
  return entries.back().value;
}

bool Value::erase(std::string_view name) {
  return std::erase_if(entries, [&](const Entry& entry) { return entry.name == name; }) != 0;
}

Value* Value::find(const Path& path) {
  Value* value = this;
  for (const std::string& name : path) {
    value = step(*value, name);
    if (value == nullptr) {
      return nullptr;
    }
  }
  return value;
}

const Value* Value::find(const Path& path) const {
  return const_cast<Value*>(this)->find(path);
}

void merge(Value& base, Value over) {
  if (!base.is_map() || !over.is_map()) {
    base = std::move(over);
    return;
  }
  for (Entry& entry : over.entries) {
    if (Value* found = base.find(entry.name)) {
      merge(*found, std::move(entry.value));
    } else {
      base.entries.push_back(std::move(entry));
    }
  }
  base.origin = over.origin;
}

bool merge_at(Value& base, const Path& path, Value value) {
  Value* at = &base;
  for (const std::string& name : path) {
    if (at->is_list()) {
      at = step(*at, name);
      if (at == nullptr) {
        return false;
      }
      continue;
    }
    if (at->is_null()) {
      *at = Value::map(value.origin);
    } else if (!at->is_map()) {
      return false;
    }
    at = &at->at_or_add(name);
  }
  merge(*at, std::move(value));
  return true;
}

void set_origin(Value& value, const Origin& origin) {
  value.origin = origin;
  for (Value& item : value.items) {
    set_origin(item, origin);
  }
  for (Entry& entry : value.entries) {
    set_origin(entry.value, origin);
  }
}

void set_order(Value& value, int64_t order) {
  value.origin.order = order;
  for (Value& item : value.items) {
    set_order(item, order);
  }
  for (Entry& entry : value.entries) {
    set_order(entry.value, order);
  }
}

std::string to_text(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kScalar:
      return value.quoted ? fmt::format("'{}'", value.text) : value.text;
    case Value::Kind::kList: {
      std::string text;
      for (const Value& item : value.items) {
        text += (text.empty() ? "" : ", ") + to_text(item);
      }
      return "[" + text + "]";
    }
    case Value::Kind::kMap: {
      std::string text;
      for (const Entry& entry : value.entries) {
        text += (text.empty() ? "" : ", ") + entry.name + ": " + to_text(entry.value);
      }
      return "{" + text + "}";
    }
  }
  return "";
}

std::string short_text(const Value& value) {
  constexpr size_t kLongest = 80;
  if (value.origin.secret) {
    return "***";
  }
  std::string text = to_text(value);
  return text.size() <= kLongest ? text : text.substr(0, kLongest - 3) + "...";
}

std::string to_json_text(const Value& value) {
  return to_json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string join(const Path& path) {
  return fmt::format("{}", fmt::join(path, "."));
}

Path split_path(std::string_view dotted) {
  Path path(1);
  for (size_t i = 0; i < dotted.size(); ++i) {
    const char letter = dotted[i];
    if (letter == '.') {
      path.emplace_back();
    } else if (letter == '[') {
      if (!(path.size() == 1 && path.back().empty())) {
        path.emplace_back();
      }
    } else if (letter != ']') {
      path.back() += letter;
    }
  }
  return path;
}

ScalarType scalar_type(const Value& value) {
  if (value.is_null()) {
    return ScalarType::kNull;
  }
  if (!value.is_scalar() || value.quoted) {
    return ScalarType::kString;
  }
  return scalar_type(value.text);
}

}  // namespace lockstep::config
