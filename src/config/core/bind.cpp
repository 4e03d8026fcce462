// Binds a configuration tree to the typed Config struct.
#include "config/core/bind.h"

#include <algorithm>

#include "base/format.h"
#include "base/nearest.h"
#include "config/core/fields.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"

namespace lockstep::config {
namespace {

bool read(const Value& value, bool& out) {
  const auto word = value.is_scalar() ? to_bool(value.text) : std::nullopt;
  out = word.value_or(out);
  return word.has_value();
}

bool read(const Value& value, int64_t& out) {
  const auto number = value.is_scalar() ? to_integer(value.text) : std::nullopt;
  out = number.value_or(out);
  return number.has_value();
}

bool read(const Value& value, double& out) {
  const auto number = value.is_scalar() ? to_double(value.text) : std::nullopt;
  out = number.value_or(out);
  return number.has_value();
}

bool read(const Value& value, std::string& out) {
  out = value.text;
  return value.is_scalar();
}

bool read(const Value& value, std::vector<std::string>& out) {
  std::vector<std::string> list;
  for (const Value& item : value.is_list() ? value.items : std::vector<Value>{value}) {
    if (!item.is_scalar()) {
      return false;
    }
    list.push_back(item.text);
  }
  out = std::move(list);
  return true;
}

bool read(const Value& value, NumberMap& out) {
  NumberMap map;
  for (const Entry& entry : value.entries) {
    double number = 0;
    if (!read(entry.value, number)) {
      return false;
    }
    map.emplace_back(entry.name, number);
  }
  out = std::move(map);
  return value.is_map();
}

/// Parses a mixture source. Returns an error message, or an empty string on success.
std::string read_source(const Value& value, MixtureSource& out) {
  static const std::vector<std::string> kNames{"name", "files", "weight", "max_epochs"};
  if (!value.is_map()) {
    return fmt::format("{} is not a map of name, files and weight", short_text(value));
  }
  for (const Entry& entry : value.entries) {
    const bool fits = entry.name == "name"     ? read(entry.value, out.name)
                      : entry.name == "files"  ? read(entry.value, out.files)
                      : entry.name == "weight" ? read(entry.value, out.weight)
                                               : entry.value.is_null();
    int64_t epochs = 0;
    if (entry.name == "max_epochs" && read(entry.value, epochs)) {
      out.max_epochs = epochs;
    } else if (std::find(kNames.begin(), kNames.end(), entry.name) == kNames.end()) {
      return fmt::format(
          "unknown key {} of a source.{}", entry.name, did_you_mean(entry.name, kNames));
    } else if (!fits) {
      return fmt::format(
          "{}: {} is not {}",
          entry.name,
          short_text(entry.value),
          entry.name == "max_epochs" ? "an integer"
          : entry.name == "weight"   ? "a number"
                                     : "a string (files: or a list of strings)");
    }
  }
  out.name = out.name.empty() && !out.files.empty() ? out.files.front() : out.name;
  return "";
}

template <class T>
bool read(const Value& value, std::optional<T>& out) {
  T inner{};
  if (!read(value, inner)) {
    return false;
  }
  out = std::move(inner);
  return true;
}

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

class Binder {
 public:
  Binder(const Value& map, std::string prefix, Origins& origins, Problems& problems)
      : map_(map),
        prefix_(std::move(prefix)),
        origins_(origins),
        problems_(problems) {}

  template <class T>
  void operator()(const Field& field, T& target) {
    const Value* value = take(field);
    if (value == nullptr || value->origin.source == Origin::Source::kDefault) {
      return;
    }
    const std::string key = prefix_ + std::string(field.name);
    origins_[key] = value->origin;
    const bool null_word =
        IsOptional<T>::value && value->is_scalar() && !value->quoted && is_null_word(value->text);
    if (value->is_null() || null_word) {
      target = T{};
      if constexpr (!IsOptional<T>::value && !std::is_same_v<T, Mixture>) {
        set_default(key, target);
      }
      return;
    }
    Value checked = *value;
    if (!field.choices.empty() && !fit_choice(key, field, checked)) {
      return;
    }
    if constexpr (std::is_same_v<T, Mixture>) {
      bind_mixture(key, checked, target);
      return;
    } else if (!read(checked, target)) {
      const Key* known = find_key(key);
      problems_.add(
          key, value->origin, fmt::format("{} is not {}", short_text(*value), type_text(*known)));
    }
  }

  template <class Section>
  void section(const Field& field, Section& target) {
    const Value* value = take(field);
    if (value == nullptr || value->is_null()) {
      return;
    }
    const std::string key = prefix_ + std::string(field.name);
    if (!value->is_map()) {
      if (value->origin.source != Origin::Source::kDefault) {
        problems_.add(
            key,
            value->origin,
            fmt::format("{} is not a map of keys", short_text(*value)),
            section_remedy(key, *value));
      }
      return;
    }
    Binder inner(*value, key + ".", origins_, problems_);
    visit_fields(target, inner);
    inner.report_unknown();
  }

  void report_unknown() const {
    for (const Entry& entry : map_.entries) {
      if (std::find(taken_.begin(), taken_.end(), entry.name) != taken_.end()) {
        continue;
      }
      const std::string key = prefix_ + entry.name;
      problems_.add(
          key,
          entry.value.origin,
          "unknown key." + did_you_mean_key(key),
          "`--help all` lists all keys");
    }
  }

 private:
  const Value* take(const Field& field) {
    taken_.emplace_back(field.name);
    return map_.find(field.name);
  }

  void bind_mixture(const std::string& key, const Value& value, Mixture& target) {
    const std::string remedy =
        "write " + key +
        "='[{name: a, files: [a.txt], weight: 0.7}, {name: b, files: [b.txt], weight: 0.3}]'";
    if (!value.is_list()) {
      problems_.add(
          key, value.origin, fmt::format("{} is not a list of maps", short_text(value)), remedy);
      return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      MixtureSource source;
      const std::string problem = read_source(value.items[i], source);
      if (!problem.empty()) {
        problems_.add(fmt::format("{}[{}]", key, i), value.origin, problem, remedy);
      }
      target.push_back(std::move(source));
    }
  }

  template <class T>
  void set_default(const std::string& key, T& target) const {
    const Key* known = find_key(key);
    read(known->default_value, target);
  }

  static std::string section_remedy(const std::string& key, const Value& value) {
    if (key == "model" && value.is_scalar()) {
      return fmt::format(
          "write model.path={0} for a folder or a Hub name, or model.preset={0} for a built-in "
          "description; model={0} selects the file model/{0}.yaml of a configuration tree",
          value.text);
    }
    return fmt::format("write {}.KEY=VALUE", key);
  }

  /// Replaces the value with the matching choice, or reports a problem. Also accepts false for the
  /// choice `no`, which YAML 1.1 parses as false.
  bool fit_choice(const std::string& key, const Field& field, Value& value) {
    if (!value.is_scalar()) {
      return true;  // read() reports the problem
    }
    const std::string lower = lower_case(value.text);
    for (const std::string_view choice : field.choices) {
      if (lower == lower_case(choice) || (lower == "false" && choice == "no")) {
        value.text = std::string(choice);
        return true;
      }
    }
    std::vector<std::string> choices(field.choices.begin(), field.choices.end());
    std::erase(choices, "");
    problems_.add(
        key,
        value.origin,
        fmt::format(
            "{} is not one of {}.{}",
            short_text(value),
            fmt::join(choices, ", "),
            did_you_mean(lower, choices)));
    return false;
  }

  const Value& map_;
  std::string prefix_;
  Origins& origins_;
  Problems& problems_;
  std::vector<std::string> taken_;
};

}  // namespace

void bind_config(const Value& tree, Config& config, Origins& origins, Problems& problems) {
  Binder binder(tree, "", origins, problems);
  visit_fields(config, binder);
}

}  // namespace lockstep::config
