// Reads the files of a Hydra configuration tree.
#include "config/hydra/repository.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_at(const Origin& origin, const std::string& what) {
  throw Error(ErrorKind::kConfig, fmt::format("{}: {}", describe(origin), what));
}

/// Returns NAME of "# @package NAME" in the leading comments of a file.
std::optional<std::string> package_header(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) {
      continue;
    }
    if (line[begin] != '#') {
      break;
    }
    line.remove_prefix(begin + 1);
    const size_t word = line.find_first_not_of(" \t#");
    constexpr std::string_view kDirective = "@package";
    if (word == std::string_view::npos || !line.substr(word).starts_with(kDirective)) {
      continue;
    }
    line.remove_prefix(word + kDirective.size());
    const size_t name = line.find_first_not_of(" \t:");
    const size_t last = line.find_last_not_of(" \t\r");
    return name == std::string_view::npos ? "" : std::string(line.substr(name, last + 1 - name));
  }
  return std::nullopt;
}

/// Removes "optional " and "override " from the start of an entry's name.
std::string take_keywords(std::string name, DefaultItem& item) {
  for (;;) {
    if (name.starts_with("optional ")) {
      item.optional = true;
    } else if (name.starts_with("override ")) {
      item.override_ = true;
    } else {
      return name;
    }
    name.erase(0, 9);
    name.erase(0, name.find_first_not_of(' '));
  }
}

DefaultItem parse_item(const Value& value) {
  DefaultItem item;
  item.origin = value.origin;
  std::string name;
  if (value.is_scalar()) {
    name = value.text;
  } else if (value.is_map() && value.entries.size() == 1) {
    item.kind = DefaultItem::Kind::kGroup;
    name = value.entries[0].name;
    const Value& option = value.entries[0].value;
    item.is_list = option.is_list();
    for (const Value& one : option.is_list() ? option.items : std::vector<Value>{option}) {
      if (one.is_scalar()) {
        item.options.push_back(one.text);
      } else if (!one.is_null() || option.is_list()) {
        fail_at(
            value.origin,
            "an option in the defaults list must be a name, a list of names, or null");
      }
    }
  } else {
    fail_at(
        value.origin,
        "an entry of the defaults list must be a file name, one group: option, or _self_");
  }
  name = take_keywords(std::move(name), item);
  if (const size_t sign = name.find('@'); sign != std::string::npos) {
    item.package = name.substr(sign + 1);
    name.resize(sign);
    if (item.package == "_here_") {
      item.package = "";
    }
  }
  if (name == "_self_") {
    item.kind = DefaultItem::Kind::kSelf;
  }
  if (name.empty() || name == "/") {
    fail_at(value.origin, "a name is missing in the defaults list");
  }
  item.path = std::move(name);
  return item;
}

std::optional<fs::path> with_extension(const fs::path& path) {
  std::error_code ignored;
  for (const char* extension : {".yaml", ".yml"}) {
    fs::path file = path;
    file += extension;
    if (fs::is_regular_file(file, ignored)) {
      return file;
    }
  }
  const bool has_one = path.extension() == ".yaml" || path.extension() == ".yml";
  return has_one && fs::is_regular_file(path, ignored) ? std::optional(path) : std::nullopt;
}

}  // namespace

ConfigFile read_config(const fs::path& path) {
  ConfigFile file;
  file.place = path.string();
  file.content = read_config_file(path);
  if (file.content.is_null()) {
    file.content = Value::map(file.content.origin);
  }
  if (!file.content.is_map()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}: a configuration file must be a map of keys", path.string()));
  }
  file.package_header = package_header(read_file(path, ErrorKind::kConfig, kLongestJson));
  if (const Value* defaults = file.content.find("defaults")) {
    if (!defaults->is_list() && !defaults->is_null()) {
      fail_at(defaults->origin, "'defaults' must be a list: - group: option");
    }
    for (const Value& item : defaults->items) {
      file.defaults.push_back(parse_item(item));
    }
    file.content.erase("defaults");
  }
  return file;
}

Repository::Repository(const fs::path& primary, std::vector<fs::path> folders)
    : primary_(primary),
      folders_(std::move(folders)) {}

const ConfigFile* Repository::load(const std::string& path) {
  const auto known = files_.find(path);
  if (known != files_.end()) {
    return known->second ? &*known->second : nullptr;
  }
  std::optional<ConfigFile>& entry = files_[path];
  if (path == kPrimary) {
    entry = read_config(primary_);
  } else {
    for (const fs::path& folder : folders_) {
      if (const auto file = with_extension(folder / path)) {
        entry = read_config(*file);
        break;
      }
    }
  }
  return entry ? &*entry : nullptr;
}

bool Repository::group_exists(const std::string& group) const {
  std::error_code ignored;
  return !group.empty() && std::any_of(folders_.begin(), folders_.end(), [&](const auto& folder) {
    return fs::is_directory(folder / group, ignored);
  });
}

std::vector<std::string> Repository::options(const std::string& group) const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::path& folder : folders_) {
    for (const auto& entry : fs::directory_iterator(folder / group, ignored)) {
      const fs::path& path = entry.path();
      if (path.extension() == ".yaml" || path.extension() == ".yml") {
        names.push_back(path.stem().string());
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace lockstep::config
