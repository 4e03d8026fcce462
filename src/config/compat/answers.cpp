#include "config/compat/answers.h"

#include "base/format.h"
#include "base/nearest.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"

namespace lockstep::config {

void AnswerTarget::set(const std::string& key, const std::string& text, const Value& from) const {
  set_key(settings, key, text, from.origin);
}

void AnswerTarget::copy(const std::string& key, const Value& from) const {
  merge_at(settings, split_path(key), from);
}

void AnswerTarget::refuse(
    const std::string& name,
    const Value& value,
    const std::string& why,
    const std::string& remedy) const {
  problems.add(prefix + name, value.origin, fmt::format("{}: {}", short_text(value), why), remedy);
}

bool is_on(const Value& value) {
  return value.is_scalar() && to_bool(value.text).value_or(false);
}
bool is_one(const Value& value) {
  return value.is_null() || (value.is_scalar() && to_integer(value.text) == 1);
}

Answer nothing() {
  return [](const AnswerTarget&, const std::string&, const Value&) {};
}
Answer copies(const std::string& key) {
  return [key](const AnswerTarget& target, const std::string&, const Value& value) {
    target.copy(key, value);
  };
}
Answer sets_if_true(const std::string& key, const std::string& text) {
  return [key, text](const AnswerTarget& target, const std::string&, const Value& value) {
    if (is_on(value)) {
      target.set(key, text, value);
    }
  };
}

Answer warns(const std::string& why) {
  return [why](const AnswerTarget& target, const std::string& name, const Value& value) {
    const std::string text = lower_case(value.text);
    if (!value.is_null() && text != "no" && text != "false") {
      target.warnings.push_back(fmt::format(
          "{}{} ({}) does nothing: {}", target.prefix, name, describe(value.origin), why));
    }
  };
}
Answer refuses_true(const std::string& why) {
  return [why](const AnswerTarget& target, const std::string& name, const Value& value) {
    if (is_on(value)) {
      target.refuse(name, value, why);
    }
  };
}
Answer refuses_more_than_one(const std::string& why) {
  return [why](const AnswerTarget& target, const std::string& name, const Value& value) {
    if (!is_one(value)) {
      target.refuse(name, value, why);
    }
  };
}

void answer_entries(
    const Value& map,
    const Answers& answers,
    const std::string& prefix_of_names,
    const AnswerTarget& target) {
  if (map.is_null()) {
    return;
  }
  if (!map.is_map()) {
    target.problems.add(target.prefix, map.origin, fmt::format("{} is not a map", short_text(map)));
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, known] : answers) {
    names.push_back(name);
  }
  for (const Entry& entry : map.entries) {
    std::string name = entry.name;
    if (!prefix_of_names.empty() && name.starts_with(prefix_of_names)) {
      name.erase(0, prefix_of_names.size());
    }
    const auto found = answers.find(name);
    if (found == answers.end()) {
      target.problems.add(
          target.prefix + entry.name,
          entry.value.origin,
          "there is no such key." + did_you_mean(name, names));
    } else {
      found->second(target, entry.name, entry.value);
    }
  }
}

}  // namespace lockstep::config
