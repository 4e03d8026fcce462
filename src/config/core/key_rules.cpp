// Applies rules to keys of other programs and to unsupported keys.
#include "config/core/key_rules.h"

#include <algorithm>

#include "base/format.h"
#include "base/nearest.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"

namespace lockstep::config {
namespace {

bool is_listed(std::string_view values, const std::string& text) {
  for (;;) {
    const size_t bar = std::min(values.find('|'), values.size());
    if (lower_case(values.substr(0, bar)) == text) {
      return true;
    }
    if (bar == values.size()) {
      return false;
    }
    values.remove_prefix(bar + 1);
  }
}

void read_value(const KeyRule& rule, const Value& value, const RuleTarget& target) {
  const std::string text(rule.text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    target.copy(text, value);
  } else if (is_on(value)) {
    target.set(text.substr(0, equals), text.substr(equals + 1), value);
  } else if (rule.takes == KeyRule::Takes::kSwitch && !value.is_null() && !to_bool(value.text)) {
    target.refuse(std::string(rule.name), value, "must be true or false");
  }
}

}  // namespace

void RuleTarget::set(const std::string& key, const std::string& text, const Value& from) const {
  set_key(settings, key, text, from.origin);
}

void RuleTarget::copy(const std::string& key, const Value& from) const {
  merge_at(settings, split_path(key), from);
}

void RuleTarget::refuse(
    const std::string& name,
    const Value& value,
    const std::string& why,
    const std::string& remedy) const {
  problems.add(prefix + name, value.origin, fmt::format("{}: {}", short_text(value), why), remedy);
}

RuleTarget RuleTarget::below(const std::string& section) const {
  return {settings, problems, warnings, prefix + section + "."};
}

const KeyRule* find_rule(KeyRules rules, std::string_view name) {
  const auto found = std::ranges::find(rules, name, &KeyRule::name);
  return found == rules.end() ? nullptr : &*found;
}

bool is_harmless(const KeyRule& rule, const Value& value) {
  if (value.is_null() || rule.harmless == "*") {
    return true;
  }
  if (value.is_scalar() && is_null_word(value.text) && !value.quoted) {
    return true;
  }
  std::string text = lower_case(value.is_scalar() ? value.text : to_text(value));
  std::erase(text, '\'');
  if (is_listed(rule.harmless, text)) {
    return true;
  }
  const auto word = value.is_scalar() ? to_bool(value.text) : std::nullopt;
  return word && is_listed(rule.harmless, *word ? "true" : "false");
}

void apply_rule(
    const KeyRule& rule, const std::string& name, const Value& value, const RuleTarget& target) {
  if (rule.kind == KeyRule::Kind::kRead) {
    if (rule.read != nullptr) {
      rule.read(target, name, value);
    } else if (!rule.text.empty()) {
      read_value(rule, value, target);
    }
  } else if (is_harmless(rule, value)) {
    // The value requests no effect.
  } else if (rule.kind == KeyRule::Kind::kRefused) {
    target.refuse(name, value, std::string(rule.text));
  } else {
    target.warnings.push_back(fmt::format(
        "{}{} ({}) has no effect: {}", target.prefix, name, describe(value.origin), rule.text));
  }
}

void apply_rules(
    KeyRules rules,
    const Value& map,
    const std::string& prefix_of_names,
    const RuleTarget& target) {
  if (map.is_null()) {
    return;
  }
  if (!map.is_map()) {
    target.problems.add(target.prefix, map.origin, fmt::format("{} is not a map", short_text(map)));
    return;
  }
  for (const Entry& entry : map.entries) {
    std::string name = entry.name;
    if (!prefix_of_names.empty() && name.starts_with(prefix_of_names)) {
      name.erase(0, prefix_of_names.size());
    }
    if (const KeyRule* const rule = find_rule(rules, name)) {
      apply_rule(*rule, entry.name, entry.value, target);
      continue;
    }
    std::vector<std::string> names;
    for (const KeyRule& rule : rules) {
      names.emplace_back(rule.name);
    }
    target.problems.add(
        target.prefix + entry.name, entry.value.origin, "unknown key." + did_you_mean(name, names));
  }
}

bool is_on(const Value& value) {
  return value.is_scalar() && to_bool(value.text).value_or(false);
}

bool is_one(const Value& value) {
  return value.is_null() || (value.is_scalar() && to_integer(value.text) == 1);
}

}  // namespace lockstep::config
