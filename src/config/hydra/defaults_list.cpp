// Expands Hydra's defaults list.
#include "config/hydra/defaults_list.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

[[noreturn]] void fail_in_list(
    const Origin& origin, const std::string& what, std::string remedy = "") {
  throw Error(ErrorKind::kConfig, fmt::format("{}: {}", describe(origin), what), std::move(remedy));
}

std::string dotted(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_hydras_own(const std::string& group) {
  return group == "hydra" || group.starts_with("hydra/");
}

/// Returns the package from the last _global_ on. Any text before it is ignored.
std::string from_global(const std::string& package) {
  constexpr std::string_view kGlobal = "_global_";
  const size_t at = package.rfind(kGlobal);
  if (at == std::string::npos) {
    return package;
  }
  return package.size() > at + kGlobal.size() ? package.substr(at + kGlobal.size() + 1) : "";
}

std::string join_packages(const std::string& parent, const std::string& package) {
  const std::string whole = parent.empty()    ? package
                            : package.empty() ? parent
                                              : parent + "." + package;
  return from_global(whole);
}

}  // namespace

/// Item of a defaults list with its position in the tree.
struct DefaultsList::Node {
  DefaultItem item = {};
  std::string option = {};  // set when an option of the group has been selected
  std::string base = {};    // folder of the file that contains the list, relative to the root
  std::string parent_package = {};
  std::optional<std::string> header = {};
  bool primary = false;

  static Node child(const DefaultItem& item, const Node& parent) {
    return {
        .item = item, .base = parent.group_path(), .parent_package = parent.final_package(true)};
  }

  bool is_group() const { return item.kind == DefaultItem::Kind::kGroup; }

  std::string from_root(const std::string& path) const {
    if (path.starts_with('/')) {
      return path.substr(1);
    }
    return base.empty() ? path : base + "/" + path;
  }
  /// Returns the path as written, without a leading '/'.
  std::string relative() const {
    return item.path.starts_with('/') ? item.path.substr(1) : item.path;
  }
  /// Returns the folder of the file: the group, or the parent of the file's path.
  std::string group_path() const {
    return is_group() ? from_root(item.path) : parent_of(from_root(item.path));
  }
  std::string file_path() const {
    if (primary) {
      return Repository::kPrimary;
    }
    return is_group() ? group_path() + "/" + option : from_root(item.path);
  }
  std::string default_package() const { return dotted(group_path()); }
  std::string final_package(bool with_header) const {
    std::optional<std::string> package = item.package;
    if (package && package->find("_group_") != std::string::npos) {
      std::string filled = *package;
      filled.replace(filled.find("_group_"), 7, default_package());
      package = "_global_." + filled;
    } else if (!package && with_header && header) {
      package = header;
    }
    if (!package) {
      package = dotted(is_group() ? relative() : parent_of(relative()));
    }
    return join_packages(parent_package, *package);
  }
  /// Returns "group", or "group@package" if the package differs from the default.
  std::string override_key() const {
    const std::string package = final_package(false);
    const std::string group = group_path();
    if (package == default_package()) {
      return group;
    }
    return group + "@" + (package.empty() ? "_global_" : package);
  }
};

DefaultsList::DefaultsList(Repository& repository, std::vector<Override> overrides)
    : repository_(repository) {
  for (Override& override : overrides) {
    take(std::move(override));
  }
}

void DefaultsList::take(Override override) {
  const Origin origin{.source = Origin::Source::kCommandLine, .place = override.text};
  const bool group = !override.is_flag && repository_.group_exists(override.key);
  if (!group && is_hydras_own(override.key) && override.key.find('/') != std::string::npos) {
    warnings_.push_back(fmt::format(
        "{}: Hydra's own groups have no effect; start jobs with `lockstep launch`", override.text));
    return;
  }
  if (!group || (override.value && override.value->is_map())) {
    if (override.package || override.key.find('/') != std::string::npos) {
      fail_in_list(origin, fmt::format("unknown configuration group '{}'", override.key));
    }
    rest_.push_back(std::move(override));
    return;
  }
  const std::string key =
      override.package ? fmt::format("{}@{}", override.key, *override.package) : override.key;
  std::vector<std::string> options;
  if (override.value && override.value->is_list()) {
    for (const Value& item : override.value->items) {
      options.push_back(item.text);
    }
  } else if (override.value && override.value->is_scalar()) {
    options.push_back(override.value->text);
  }
  const bool is_list = override.value && override.value->is_list();
  switch (override.kind) {
    case Override::Kind::kForceAdd:
      fail_in_list(origin, "add a configuration group with one +");
    case Override::Kind::kDelete:
      deletions_[key] = {options.empty() ? "" : options[0], false, override.text};
      break;
    case Override::Kind::kAdd:
      appended_.push_back(
          {.kind = DefaultItem::Kind::kGroup,
           .path = override.key,
           .package = override.package,
           .options = std::move(options),
           .is_list = is_list,
           .origin = origin});
      break;
    case Override::Kind::kChange:
      override_choices_[key] = {std::move(options), is_list, true, false, origin};
      break;
  }
}

std::vector<DefaultsResult> DefaultsList::expand() {
  Node root;
  root.primary = true;
  root.item.path = Repository::kPrimary;
  std::vector<DefaultsResult> results = visit(root, false);
  check_used();
  return results;
}

const ConfigFile& DefaultsList::load(const Node& node) {
  const std::string path = node.file_path();
  if (const ConfigFile* file = repository_.load(path)) {
    return *file;
  }
  std::vector<std::string> folders;
  for (const auto& folder : repository_.folders()) {
    folders.push_back(folder.string());
  }
  const std::vector<std::string> options = repository_.options(node.group_path());
  const std::string name = path.substr(path.rfind('/') + 1);
  fail_in_list(
      node.item.origin,
      fmt::format("configuration file '{}' not found.{}", path, did_you_mean(name, options)),
      options.empty() ? fmt::format("looked in {}", fmt::join(folders, ", "))
                      : fmt::format("'{}' has: {}", node.group_path(), fmt::join(options, ", ")));
}

bool DefaultsList::is_deleted(const Node& node) {
  if (!node.is_group()) {
    return false;
  }
  const auto found = deletions_.find(node.override_key());
  if (found == deletions_.end() ||
      (!found->second.option.empty() && found->second.option != node.option)) {
    return false;
  }
  found->second.used = true;
  return true;
}

void DefaultsList::note_choice(const Node& node) {
  if (!node.is_group()) {
    return;
  }
  const std::string key = node.override_key();
  const auto [known, is_new] = known_choices_.emplace(key, node.option);
  if (!is_new && known->second != node.option) {
    fail_in_list(
        node.item.origin,
        fmt::format("'{}' is selected twice: {} and {}", key, known->second, node.option),
        fmt::format(
            "to change a selection made elsewhere, write - override {}: {}", key, node.option));
  }
  known_keys_[node.group_path()].insert(key);
}

std::vector<DefaultsResult> DefaultsList::visit(Node& node, bool in_interpolation) {
  const ConfigFile* header_of =
      node.option.empty() && node.is_group() ? nullptr : repository_.load(node.file_path());
  if (header_of != nullptr && header_of->package_header) {
    const std::string& header = *header_of->package_header;
    // A package header is absolute; _group_ is the default package.
    if (header != "_group_") {
      node.header = header.starts_with("_global_") ? header : "_global_." + header;
    }
  }
  if (is_deleted(node)) {
    return {};
  }
  note_choice(node);
  if (node.is_group() && node.option.empty()) {
    return {};  // null selects no option of this group
  }
  if (node.option == "???") {
    fail_in_list(
        node.item.origin,
        fmt::format("'{}' requires an option: {}=OPTION", node.override_key(), node.override_key()),
        fmt::format("there are: {}", fmt::join(repository_.options(node.group_path()), ", ")));
  }
  const std::string path = node.file_path();
  if (header_of == nullptr && (node.item.optional || is_hydras_own(node.group_path()))) {
    known_choices_.erase(node.is_group() ? node.override_key() : "");
    return {};
  }
  const ConfigFile& file = load(node);
  if (std::find(open_.begin(), open_.end(), path) != open_.end() ||
      open_.size() > static_cast<size_t>(kMaximumDepth)) {
    fail_in_list(node.item.origin, fmt::format("'{}' includes itself", path));
  }
  if (node.is_group() && !final_keys_.insert(node.override_key()).second) {
    fail_in_list(
        node.item.origin,
        fmt::format("'{}' appears more than once in the defaults list", node.override_key()));
  }
  open_.push_back(path);
  std::vector<DefaultsResult> results = visit_children(node, file, in_interpolation);
  open_.pop_back();
  return results;
}

std::vector<DefaultItem> DefaultsList::items_of(const Node& parent, const ConfigFile& file) {
  std::vector<DefaultItem> items = file.defaults;
  int selves = 0;
  for (const DefaultItem& item : items) {
    selves += item.kind == DefaultItem::Kind::kSelf;
  }
  if (selves > 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}: _self_ appears twice in the defaults list", file.place));
  }
  if (selves == 0) {
    items.push_back({.kind = DefaultItem::Kind::kSelf, .path = "_self_"});
  }
  if (parent.primary) {
    items.insert(items.end(), appended_.begin(), appended_.end());
  }
  return items;
}

void DefaultsList::register_overrides(
    const Node& parent, const std::vector<DefaultItem>& items, bool in_interpolation) {
  const DefaultItem* last = nullptr;
  for (const DefaultItem& item : items) {
    if (item.kind == DefaultItem::Kind::kSelf) {
      continue;
    }
    if (!item.override_) {
      if (last != nullptr && item.origin.source != Origin::Source::kCommandLine) {
        fail_in_list(item.origin, "overrides must be at the end of the defaults list");
      }
      continue;
    }
    last = &item;
    if (item.kind != DefaultItem::Kind::kGroup) {
      fail_in_list(item.origin, "write an override as - override group: option");
    }
    if (in_interpolation) {
      fail_in_list(item.origin, "an option selected by ${...} cannot override others");
    }
    const Node node = Node::child(item, parent);
    if (is_hydras_own(node.group_path()) && !repository_.group_exists(node.group_path())) {
      continue;
    }
    override_choices_.emplace(
        node.override_key(), Choice{item.options, item.is_list, false, false, item.origin});
  }
}

std::vector<DefaultsResult> DefaultsList::visit_children(
    const Node& parent, const ConfigFile& file, bool in_interpolation) {
  const std::vector<DefaultItem> items = items_of(parent, file);
  register_overrides(parent, items, in_interpolation);
  std::vector<std::vector<DefaultsResult>> children(items.size());
  std::vector<size_t> deferred;
  // Reverse order: an experiment at the end changes the options before it.
  for (size_t i = items.size(); i-- > 0;) {
    const DefaultItem& item = items[i];
    if (item.kind == DefaultItem::Kind::kSelf) {
      children[i] = {{parent.file_path(), parent.final_package(true)}};
    } else if (!item.override_) {
      Node child = Node::child(item, parent);
      if (child.is_group()) {
        if (const auto found = override_choices_.find(child.override_key());
            found != override_choices_.end()) {
          found->second.used = true;
          child.item.options = found->second.options;
          child.item.is_list = found->second.is_list;
          child.item.origin = found->second.origin;
        }
      }
      const auto& options = child.item.options;
      if (!child.item.is_list && !options.empty() && options[0].find("${") != std::string::npos) {
        deferred.push_back(i);
        continue;
      }
      children[i] = visit_item(std::move(child), parent, in_interpolation);
    }
  }
  for (const size_t i : deferred) {
    Node child = Node::child(items[i], parent);
    child.item.options = {fill_in(items[i].options[0], child)};
    children[i] = visit_item(std::move(child), parent, true);
  }
  std::vector<DefaultsResult> results;
  for (auto& list : children) {
    results.insert(results.end(), list.begin(), list.end());
  }
  return results;
}

std::vector<DefaultsResult> DefaultsList::visit_item(
    Node child, const Node& parent, bool in_interpolation) {
  if (!child.is_group() || !child.item.is_list) {
    child.option = child.is_group() && !child.item.options.empty() ? child.item.options[0] : "";
    return visit(child, in_interpolation);
  }
  // With several options of one group, each is a file in the group's package.
  std::vector<std::vector<DefaultsResult>> lists;
  for (size_t i = child.item.options.size(); i-- > 0;) {
    Node one = Node::child(child.item, parent);
    one.item.kind = DefaultItem::Kind::kConfig;
    one.item.path = child.item.path + "/" + child.item.options[i];
    lists.push_back(visit(one, in_interpolation));
  }
  std::vector<DefaultsResult> results;
  for (size_t i = lists.size(); i-- > 0;) {
    results.insert(results.end(), lists[i].begin(), lists[i].end());
  }
  return results;
}

/// Replaces each ${group} with the selected option of that group.
std::string DefaultsList::fill_in(const std::string& option, const Node& node) const {
  std::string text;
  for (size_t at = 0; at < option.size();) {
    const size_t open = option.find("${", at);
    if (open == std::string::npos) {
      return text + option.substr(at);
    }
    const size_t close = option.find('}', open);
    const std::string name =
        close == std::string::npos ? "" : option.substr(open + 2, close - open - 2);
    const auto known = known_choices_.find(name);
    if (known == known_choices_.end()) {
      std::vector<std::string> names;
      for (const auto& [key, choice] : known_choices_) {
        names.push_back(key);
      }
      fail_in_list(
          node.item.origin,
          fmt::format("'{}': unknown option of '{}'", option, name),
          fmt::format("known are: {}", fmt::join(names, ", ")));
    }
    text += option.substr(at, open - at) + known->second;
    at = close + 1;
  }
  return text;
}

void DefaultsList::check_used() const {
  for (const auto& [key, choice] : override_choices_) {
    if (choice.used) {
      continue;
    }
    const std::string group = key.substr(0, key.find('@'));
    std::string remedy;
    if (const auto known = known_keys_.find(group); known != known_keys_.end()) {
      remedy = fmt::format("did you mean {}?", fmt::join(known->second, " or "));
    } else if (choice.external) {
      remedy = fmt::format("to add it to the list: +{}={}", key, fmt::join(choice.options, ","));
    }
    fail_in_list(
        choice.origin, fmt::format("the defaults list contains no '{}' to change", key), remedy);
  }
  for (const auto& [key, deletion] : deletions_) {
    if (!deletion.used) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("command line: {}: not in the defaults list", deletion.text));
    }
  }
}

}  // namespace lockstep::config
