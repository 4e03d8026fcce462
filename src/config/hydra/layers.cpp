// Applies overrides and canonical names to a configuration tree.
#include "config/hydra/layers.h"

#include <algorithm>

#include "base/format.h"
#include "config/core/schema.h"
#include "config/core/trainer_keys.h"

namespace lockstep::config {
namespace {

bool is_default(const Value& value) {
  return value.origin.source == Origin::Source::kDefault;
}

/// Replaces `to` with `from` if `from` belongs to a later layer. Two values of the same layer must
/// be equal: transformers writes some arguments under their old and their new name.
void take_later(
    const std::string& key, const std::string& other, Value& to, Value from, Problems& problems) {
  if (is_default(to) || from.origin.order > to.origin.order) {
    merge(to, std::move(from));
  } else if (from.origin.order == to.origin.order && to_text(from) != to_text(to)) {
    problems.add(
        key,
        to.origin,
        fmt::format("also given as {} ({})", other, describe(from.origin)),
        "give it once");
  }
}

void add_references(std::string_view text, std::set<std::string>& names) {
  for (size_t at = text.find("${"); at != std::string_view::npos; at = text.find("${", at + 2)) {
    std::string_view rest = text.substr(at + 2);
    // ${oc.select:name} and similar resolvers also refer to a key.
    const size_t colon = rest.find(':');
    if (rest.starts_with("oc.") && !rest.starts_with("oc.env") && colon != std::string_view::npos) {
      rest.remove_prefix(colon + 1);
    }
    rest = rest.substr(0, rest.find_first_of(".[}:, "));
    if (!rest.empty()) {
      names.emplace(rest);
    }
  }
}

void add_references(const Value& value, std::set<std::string>& names) {
  add_references(std::string_view(value.text), names);
  for (const Value& item : value.items) {
    add_references(item, names);
  }
  for (const Entry& entry : value.entries) {
    add_references(entry.value, names);
  }
}

const Value& defaults() {
  static const Value kDefaults = to_value(Config{});
  return kDefaults;
}

std::vector<std::string> variables(const Value& tree) {
  std::vector<std::string> names;
  for (const Entry& entry : tree.entries) {
    if (!is_section(entry.name)) {
      names.push_back(entry.name);
    }
  }
  return names;
}

/// Returns the target path of an override. Does not expand a short name if a file defines it at the
/// top level.
Path target_of(const Override& override, const Value& tree) {
  Path path = split_path(override.key);
  const Value* top = tree.find(path[0]);
  if (top != nullptr && !is_section(path[0]) && path[0] != "trainer" && !is_default(*top)) {
    return path;
  }
  return canonical_path(std::move(path));
}

bool may_be_set(const Path& path, const Value& tree) {
  if (tree.find(path) != nullptr) {
    return true;
  }
  const bool known =
      path.size() >= 2 && path[0] == "training" && find_rule(trainer_rules(), path[1]) != nullptr;
  return known || path[0] == "hydra";
}

void remove(Value& tree, const Path& path, const Override& override, Problems& problems) {
  const Origin origin{.source = Origin::Source::kCommandLine, .place = override.text};
  const Value* found = tree.find(path);
  if (found == nullptr || (is_default(*found) && !found->is_map())) {
    problems.add(override.key, origin, "nothing to delete");
    return;
  }
  if (override.value && to_text(*override.value) != to_text(*found)) {
    problems.add(
        override.key,
        origin,
        fmt::format("the value is {}, not {}", short_text(*found), short_text(*override.value)));
    return;
  }
  const Value* original = defaults().find(path);
  if (original != nullptr) {
    *tree.find(path) = *original;
  } else {
    Value* parent = tree.find(Path(path.begin(), path.end() - 1));
    if (parent->is_map()) {
      parent->erase(path.back());
    } else {
      parent->items.erase(parent->items.begin() + std::stol(path.back()));
    }
  }
}

void move_trainer_arguments(Value& tree, Problems& problems) {
  if (Value* trainer = tree.find("trainer")) {
    if (const Value* arguments = trainer->find("args"); arguments != nullptr) {
      Value moved = *arguments;
      trainer->erase("args");
      if (trainer->entries.empty()) {
        tree.erase("trainer");
      }
      Value& training = tree.at_or_add("training");
      if (training.is_null()) {
        training = Value::map(moved.origin);
      }
      for (Entry& entry : moved.entries) {
        const std::string key = "training." + entry.name;
        if (Value* known = training.find(entry.name)) {
          take_later(key, "trainer.args." + entry.name, *known, std::move(entry.value), problems);
        } else {
          training.entries.push_back(std::move(entry));
        }
      }
    }
  }
}

void rename_older_names_in(const std::string& section, Value& map, Problems& problems) {
  const std::vector<Entry> entries = map.entries;
  for (const Entry& entry : entries) {
    const std::string current(current_name(section, entry.name));
    if (current == entry.name) {
      continue;
    }
    map.erase(entry.name);
    if (Value* known = map.find(current)) {
      take_later(section + "." + current, entry.name, *known, entry.value, problems);
    } else {
      map.entries.push_back({current, entry.value});
    }
  }
}

}  // namespace

Path canonical_path(Path path) {
  if (path.size() >= 2 && path[0] == "trainer" && path[1] == "args") {
    path.erase(path.begin());
    path[0] = "training";
  } else if (!path.empty() && !is_section(path[0])) {
    if (is_training_name(path[0])) {
      path.insert(path.begin(), "training");
    } else if (const std::string_view key = script_key(path[0]); !key.empty()) {
      Path whole = split_path(key);
      whole.insert(whole.end(), path.begin() + 1, path.end());
      return whole;
    }
  }
  if (path.size() >= 2) {
    path[1] = std::string(current_name(path[0], path[1]));
  }
  return path;
}

void rename_older_names(Value& tree, Problems& problems) {
  move_trainer_arguments(tree, problems);
  for (Entry& entry : tree.entries) {
    if (entry.value.is_map()) {
      rename_older_names_in(entry.name, entry.value, problems);
    }
  }
}

void apply_override(Value& tree, const Override& override, int64_t order, Problems& problems) {
  apply_override_at(tree, target_of(override, tree), override, order, problems);
}

void apply_override_at(
    Value& tree, const Path& path, const Override& override, int64_t order, Problems& problems) {
  const Origin origin{
      .source = Origin::Source::kCommandLine, .place = override.text, .order = order};
  if (override.kind == Override::Kind::kDelete) {
    remove(tree, path, override, problems);
    return;
  }
  Value value = *override.value;
  set_origin(value, origin);
  const Value* found = tree.find(path);
  if (override.kind == Override::Kind::kChange && !may_be_set(path, tree)) {
    problems.add(
        override.key,
        origin,
        "unknown key." + did_you_mean_key(override.key, variables(tree)),
        fmt::format("`--help all` lists all keys; add your own variables with +{}", override.text));
    return;
  }
  if (override.kind == Override::Kind::kAdd && found != nullptr && !is_default(*found) &&
      !value.is_map() && !value.is_list()) {
    problems.add(
        override.key,
        origin,
        fmt::format("already has a value: {} ({})", short_text(*found), describe(found->origin)),
        "remove the +, or write ++ to add or override");
    return;
  }
  if (!merge_at(tree, path, std::move(value))) {
    problems.add(
        override.key, origin, "part of the path is not a map, or is past the end of a list");
  }
}

std::set<std::string> referenced_names(const Value& tree) {
  std::set<std::string> names;
  add_references(tree, names);
  return names;
}

void lift_short_names(Value& tree, Problems& problems) {
  const std::set<std::string> referenced = referenced_names(tree);
  const std::vector<Entry> entries = tree.entries;
  for (const Entry& entry : entries) {
    const Path path = canonical_path({entry.name});
    if (is_section(entry.name) || path == Path{entry.name}) {
      continue;
    }
    const bool is_variable = referenced.count(entry.name) != 0;
    Value* known = tree.find(path);
    if (known == nullptr) {
      merge_at(tree, path, entry.value);
    } else if (is_default(*known) || !is_variable) {
      take_later(join(path), entry.name, *known, entry.value, problems);
    }
    if (!is_variable) {
      tree.erase(entry.name);
    }
  }
}

}  // namespace lockstep::config
