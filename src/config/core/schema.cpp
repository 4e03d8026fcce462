// Builds the list of configuration keys.
#include "config/core/schema.h"

#include <algorithm>
#include <type_traits>

#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"
#include "config/core/fields.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

Value value_of(bool value) {
  return Value::scalar(value ? "true" : "false");
}
Value value_of(int64_t value) {
  return Value::scalar(fmt::format("{}", value));
}
Value value_of(double value) {
  return Value::scalar(number_text(value));
}
Value value_of(const std::string& value) {
  return Value::scalar(value, true);
}
Value value_of(const std::vector<std::string>& value) {
  Value list = Value::list();
  for (const std::string& item : value) {
    list.items.push_back(value_of(item));
  }
  return list;
}
Value value_of(const NumberMap& value) {
  Value map = Value::map();
  for (const auto& [name, number] : value) {
    map.entries.push_back({name, value_of(number)});
  }
  return map;
}
Value value_of(const Mixture& value) {
  Value list = Value::list();
  for (const MixtureSource& source : value) {
    Value map = Value::map();
    map.entries = {
        {"name", value_of(source.name)},
        {"files", value_of(source.files)},
        {"weight", value_of(source.weight)}};
    if (source.max_epochs) {
      map.entries.push_back({"max_epochs", value_of(*source.max_epochs)});
    }
    list.items.push_back(std::move(map));
  }
  return list;
}
template <class T>
Value value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Value::null();
}

template <class T>
struct TypeOf;
template <>
struct TypeOf<bool> : std::integral_constant<Key::Type, Key::Type::kBool> {};
template <>
struct TypeOf<int64_t> : std::integral_constant<Key::Type, Key::Type::kInteger> {};
template <>
struct TypeOf<double> : std::integral_constant<Key::Type, Key::Type::kNumber> {};
template <>
struct TypeOf<std::string> : std::integral_constant<Key::Type, Key::Type::kText> {};
template <>
struct TypeOf<std::vector<std::string>> : std::integral_constant<Key::Type, Key::Type::kList> {};
template <>
struct TypeOf<NumberMap> : std::integral_constant<Key::Type, Key::Type::kMap> {};
template <>
struct TypeOf<Mixture> : std::integral_constant<Key::Type, Key::Type::kRecords> {};
template <class T>
struct TypeOf<std::optional<T>> : TypeOf<T> {};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

struct ToValue {
  Value& map;

  template <class T>
  void operator()(const Field& field, const T& value) {
    map.entries.push_back({std::string(field.name), value_of(value)});
  }
  template <class Section>
  void section(const Field& field, const Section& section) {
    Value inner = Value::map();
    visit_fields(section, ToValue{inner});
    map.entries.push_back({std::string(field.name), std::move(inner)});
  }
};

struct ListKeys {
  std::vector<Key>& keys;
  std::string prefix;

  template <class T>
  void operator()(const Field& field, const T& value) {
    Key key{
        .name = prefix + std::string(field.name),
        .type = TypeOf<T>::value,
        .optional = kIsOptional<T>,
        .help = std::string(field.help),
        .choices = {field.choices.begin(), field.choices.end()},
        .default_value = value_of(value)};
    keys.push_back(std::move(key));
  }
  template <class Section>
  void section(const Field& field, const Section& section) {
    const std::string name = prefix + std::string(field.name);
    keys.push_back(
        {.name = name,
         .type = Key::Type::kSection,
         .help = std::string(field.help),
         .choices = {},
         .default_value = {}});
    visit_fields(section, ListKeys{keys, name + "."});
  }
};

std::vector<Key> list_keys() {
  std::vector<Key> keys;
  const Config defaults;
  visit_fields(defaults, ListKeys{keys, ""});
  return keys;
}

}  // namespace

const std::vector<Key>& all_keys() {
  static const std::vector<Key> kKeys = list_keys();
  return kKeys;
}

const Key* find_key(const std::string& name) {
  const auto& keys = all_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

const std::vector<std::string>& key_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Key& key : all_keys()) {
      if (key.type != Key::Type::kSection) {
        names.push_back(key.name);
      }
    }
    return names;
  }();
  return kNames;
}

namespace {

std::string section_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return std::string(key.substr(0, dot == std::string_view::npos ? 0 : dot));
}

/// Returns the key that `word` means without its section ("tensor", "LORA_R"). A key of another
/// section whose name is only similar is rarely meant.
std::optional<std::string> key_without_section(std::string_view word) {
  const std::string wanted = lower_case(std::string(word));
  for (const std::string& key : key_names()) {
    std::string joined = key;
    std::ranges::replace(joined, '.', '_');
    if (wanted == lower_case(key.substr(key.rfind('.') + 1)) || wanted == lower_case(joined)) {
      return key;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> nearest_key(std::string_view word, std::span<const std::string> more) {
  constexpr std::string_view kTraining = "training";
  std::vector<std::string> names(more.begin(), more.end());
  const std::string section = section_of(word);
  const bool is_known = find_key(section) != nullptr;
  for (const std::string& key : key_names()) {
    if (section.empty() && section_of(key) == kTraining) {
      names.push_back(key.substr(kTraining.size() + 1));
    } else if (!section.empty() && (!is_known || section_of(key) == section)) {
      names.push_back(key);
    }
  }
  if (section.empty() && std::ranges::find(names, word) == names.end()) {
    if (auto key = key_without_section(word)) {
      return key;
    }
  }
  return nearest_name(word, names);
}

std::string did_you_mean_key(std::string_view word, std::span<const std::string> more) {
  const auto nearest = nearest_key(word, more);
  return nearest ? fmt::format(" Did you mean '{}'?", *nearest) : "";
}

bool is_section(const std::string& name) {
  const Key* key = find_key(name);
  return key != nullptr && key->type == Key::Type::kSection && name.find('.') == std::string::npos;
}

Value to_value(const Config& config) {
  Value root = Value::map();
  visit_fields(config, ToValue{root});
  return root;
}

std::string type_text(const Key& key) {
  switch (key.type) {
    case Key::Type::kSection:
      return "a map";
    case Key::Type::kBool:
      return "true or false";
    case Key::Type::kInteger:
      return "an integer";
    case Key::Type::kNumber:
      return "a number";
    case Key::Type::kText:
      return key.choices.empty() ? "a string"
                                 : fmt::format("one of {}", fmt::join(key.choices, ", "));
    case Key::Type::kList:
      return "a list of strings";
    case Key::Type::kMap:
      return "a map of numbers";
    case Key::Type::kRecords:
      return "a list of maps";
  }
  return "";
}

}  // namespace lockstep::config
