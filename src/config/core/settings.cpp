// Merges settings from other formats into a configuration tree.
#include "config/core/settings.h"

#include "base/format.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

void fill(Value& target, const Value& setting, const std::string& key, Problems& problems) {
  if (setting.is_map()) {
    if (target.is_null()) {
      target = Value::map();
    }
    for (const Entry& entry : setting.entries) {
      const std::string inner = key.empty() ? entry.name : key + "." + entry.name;
      fill(target.at_or_add(entry.name), entry.value, inner, problems);
    }
    return;
  }
  const bool given = target.origin.source != Origin::Source::kDefault;
  if (!given) {
    target = setting;
  } else if (!same_scalar(target, setting)) {
    problems.add(
        key,
        target.origin,
        fmt::format(
            "{} contradicts {} ({})",
            short_text(target),
            short_text(setting),
            describe(setting.origin)),
        "set them to the same value, or remove one");
  }
}

}  // namespace

void set_key(
    Value& settings, const std::string& key, const std::string& text, const Origin& origin) {
  merge_at(settings, split_path(key), Value::scalar(text, false, origin));
}

bool same_scalar(const Value& a, const Value& b) {
  if (a.is_scalar() && b.is_scalar()) {
    const auto left = to_double(a.text), right = to_double(b.text);
    if (left && right) {
      return *left == *right;
    }
    if (const auto word = to_bool(a.text); word && to_bool(b.text)) {
      return *word == *to_bool(b.text);
    }
    return lower_case(a.text) == lower_case(b.text);
  }
  return to_text(a) == to_text(b);
}

void fill(Value& tree, const Value& settings, Problems& problems) {
  fill(tree, settings, "", problems);
}

}  // namespace lockstep::config
