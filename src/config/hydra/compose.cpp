// Composes a Hydra configuration tree.
#include "config/hydra/compose.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "config/hydra/defaults_list.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

/// Adds the folders in hydra.searchpath, which the primary file or the command line may set.
void add_search_path(const Value* list, std::vector<fs::path>& folders) {
  if (list == nullptr) {
    return;
  }
  for (const Value& item : list->is_list() ? list->items : std::vector<Value>{*list}) {
    std::string text = item.text;
    if (text.starts_with("file://")) {
      text.erase(0, 7);
    } else if (text.find("://") != std::string::npos) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{}: '{}' is not a supported search path", describe(item.origin), text),
          "hydra.searchpath accepts folders and file://FOLDER, but not pkg:// (Python packages)");
    }
    if (!text.empty()) {
      folders.emplace_back(text);
    }
  }
}

}  // namespace

Composition compose(const ComposeOptions& options, std::vector<Override> overrides) {
  Composition result;
  if (options.file.empty()) {
    Repository nothing({}, {});
    DefaultsList list(nothing, std::move(overrides));
    result.overrides = list.rest();
    result.warnings = list.warnings();
    return result;
  }
  std::vector<fs::path> folders{
      options.file.has_parent_path() ? options.file.parent_path() : fs::path(".")};
  folders.insert(folders.end(), options.folders.begin(), options.folders.end());
  const ConfigFile primary = read_config(options.file);
  add_search_path(primary.content.find(Path{"hydra", "searchpath"}), folders);
  for (const Override& override : overrides) {
    if (override.key == "hydra.searchpath" && override.value) {
      add_search_path(&*override.value, folders);
    }
  }
  Repository repository(options.file, std::move(folders));
  DefaultsList list(repository, std::move(overrides));
  int64_t order = kFileOrder;
  for (const DefaultsResult& file : list.expand()) {
    Value content = repository.load(file.path)->content;
    set_order(content, ++order);
    const Path package = file.package.empty() ? Path{} : split_path(file.package);
    if (!merge_at(result.tree, package, std::move(content))) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{}: package {} contains a key that is not a map",
              repository.load(file.path)->place,
              file.package));
    }
  }
  result.choices = list.choices();
  result.overrides = list.rest();
  result.warnings = list.warnings();
  return result;
}

}  // namespace lockstep::config
