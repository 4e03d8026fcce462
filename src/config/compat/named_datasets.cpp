// Finds the files of Hub datasets in local caches and folders.
#include "config/compat/named_datasets.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include <fnmatch.h>

#include "base/dataset_folder.h"
#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"
#include "config/core/scalar.h"
#include "config/core/script_data.h"
#include "config/core/settings.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<fs::path>;
using Splits = std::map<std::string, Files>;  // files of each split, by name

struct SplitName {
  std::string_view word, split;
};
/// Words in file and folder names that indicate a split, as in the `datasets` library.
constexpr SplitName kSplitWords[] = {
    {"train", "train"},
    {"training", "train"},
    {"validation", "validation"},
    {"valid", "validation"},
    {"dev", "validation"},
    {"val", "validation"},
    {"test", "test"},
    {"testing", "test"},
    {"eval", "test"},
    {"evaluation", "test"},
};

/// Location of a dataset.
struct Place {
  fs::path folder;
  bool is_arrow_cache = false;  // otherwise a repository, or a folder with the same layout
};

bool is_data_file(const fs::path& path) {
  static constexpr std::array<std::string_view, 8> kEndings = {
      ".parquet", ".arrow", ".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt"};
  fs::path name = path.filename();
  const std::string packed = lower_case(name.extension().string());
  if (packed == ".gz" || packed == ".zst") {
    name = name.stem();
  }
  return std::ranges::find(kEndings, lower_case(name.extension().string())) != kEndings.end();
}

/// Returns all files below a folder, sorted by name, without hidden files and broken links.
Files data_files(const fs::path& folder) {
  Files files;
  std::error_code code;
  fs::recursive_directory_iterator walk(folder, code);
  for (; !code && walk != fs::recursive_directory_iterator(); walk.increment(code)) {
    if (walk->path().filename().string().starts_with('.')) {
      walk.disable_recursion_pending();
    } else if (
        fs::is_regular_file(walk->path(), code) && is_data_file(walk->path()) &&
        !describes_dataset(walk->path())) {
      files.push_back(walk->path());
    }
    code.clear();
  }
  std::ranges::sort(files);
  return files;
}

std::string_view split_of_word(std::string_view word) {
  const auto* const found = std::ranges::find(kSplitWords, word, &SplitName::word);
  return found == std::end(kSplitWords) ? "" : found->split;
}

/// Returns the split indicated by a path ("data/train-00000-of-00001.parquet" -> "train"), or an
/// empty string.
std::string split_of(const fs::path& relative) {
  const std::string text = lower_case(relative.string());
  std::string word, found;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool is_letter = i < text.size() && text[i] >= 'a' && text[i] <= 'z';
    if (is_letter) {
      word += text[i];
      continue;
    }
    if (const std::string_view split = split_of_word(word); !split.empty()) {
      found = split;  // last match: the file name is checked before its folders
    }
    word.clear();
  }
  return found;
}

/// Returns the YAML header of README.md, enclosed by lines of three dashes; null if it cannot be
/// parsed.
Value front_matter(const fs::path& folder) {
  std::ifstream file(folder / "README.md");
  std::string line, text;
  if (!std::getline(file, line) || line.substr(0, 3) != "---") {
    return Value::null();
  }
  while (std::getline(file, line) && line.substr(0, 3) != "---") {
    text += line + "\n";
  }
  try {
    return parse_yaml(text, (folder / "README.md").string());
  } catch (const Error&) {
    return Value::null();  // invalid header; file names may still indicate splits
  }
}

std::string text_of(const Value& map, std::string_view name) {
  const Value* const found = map.find(name);
  return found != nullptr && found->is_scalar() ? found->text : "";
}

/// Matches a README's glob pattern against a path relative to the folder. ** matches any number of
/// folders.
bool matches(std::string pattern, const std::string& relative) {
  if (::fnmatch(pattern.c_str(), relative.c_str(), 0) == 0) {
    return true;
  }
  const size_t any = pattern.find("**/");
  return any != std::string::npos &&
         ::fnmatch(pattern.erase(any, 3).c_str(), relative.c_str(), 0) == 0;
}

void add_matches(const Value& patterns, const fs::path& folder, const Files& all, Files& files) {
  for (const Value& pattern : patterns.is_list() ? patterns.items : std::vector<Value>{patterns}) {
    for (const fs::path& file : all) {
      if (matches(pattern.text, file.lexically_relative(folder).string())) {
        files.push_back(file);
      }
    }
  }
}

/// Keeps only files of the most frequent format. A repository may contain the same rows in several
/// formats.
void keep_one_format(Files& files) {
  std::map<std::string, int> counts;
  for (const fs::path& file : files) {
    ++counts[file.extension().string()];
  }
  const auto most =
      std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; });
  if (counts.size() > 1) {
    std::erase_if(files, [&](const fs::path& file) { return file.extension() != most->first; });
  }
}

Splits splits_by_name(const fs::path& folder) {
  Files files = data_files(folder);
  keep_one_format(files);
  Splits splits;
  for (const fs::path& file : files) {
    splits[split_of(file.lexically_relative(folder))].push_back(file);
  }
  if (splits.size() == 1 && splits.contains("")) {
    return {{"train", splits[""]}};  // no file name indicates a split: all files are training data
  }
  splits.erase("");
  return splits;
}

/// Returns the splits of one configuration listed in README.md.
Splits splits_of_entry(const Value& entry, const fs::path& folder) {
  const std::string subfolder = text_of(entry, "data_dir");
  const Value* const given = entry.find("data_files");
  if (given == nullptr) {
    return splits_by_name(subfolder.empty() ? folder : folder / subfolder);
  }
  const Files all = data_files(folder);
  Splits splits;
  for (const Value& each : given->is_list() ? given->items : std::vector<Value>{*given}) {
    const Value* const path = each.find("path");
    const std::string split = text_of(each, "split");
    add_matches(
        path == nullptr ? each : *path, folder, all, splits[split.empty() ? "train" : split]);
  }
  std::erase_if(splits, [](const auto& split) { return split.second.empty(); });
  return splits;
}

/// Returns the splits of each configuration of a repository. The default configuration has the name
/// "".
std::map<std::string, Splits> configurations_of_repository(const fs::path& folder) {
  std::map<std::string, Splits> found;
  const Value front = front_matter(folder);
  const Value* const entries = front.find("configs");
  for (const Value& entry : entries != nullptr ? entries->items : std::vector<Value>{}) {
    const std::string name = text_of(entry, "config_name");
    const Splits splits = splits_of_entry(entry, folder);
    if (splits.empty()) {
      continue;  // not downloaded
    }
    found[name] = splits;
    if (name == "default" || text_of(entry, "default") == "true" || entries->items.size() == 1) {
      found[""] = splits;
    }
  }
  if (!found.empty()) {
    return found;
  }
  // If sibling folders each contain splits, each folder is a configuration.
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    if (entry.is_directory(code) && split_of(entry.path().filename()).empty()) {
      if (Splits splits = splits_by_name(entry.path()); !splits.empty()) {
        found[entry.path().filename().string()] = std::move(splits);
      }
    }
  }
  Splits all = splits_by_name(folder);
  if (!all.empty() && (found.size() < 2 || found.contains("data"))) {
    found[""] = std::move(all);
  }
  return found;
}

/// Finds CONFIGURATION/VERSION/HASH/name-split.arrow and keeps the newest version of each
/// configuration.
std::map<std::string, Splits> configurations_of_cache(const fs::path& folder) {
  std::map<std::string, Splits> found;
  std::map<std::string, fs::file_time_type> newest;
  for (const fs::path& file : data_files(folder)) {
    const fs::path relative = file.lexically_relative(folder);
    std::string stem = file.stem().string();
    if (file.extension() != ".arrow" || stem.starts_with("cache-")) {
      continue;
    }
    if (const size_t of = stem.find("-of-"); of != std::string::npos && of >= 6) {
      stem.resize(of - 6);  // name-train-00000-of-00002
    }
    const std::string split = stem.substr(stem.rfind('-') + 1);
    const std::string name = relative.begin()->string();
    std::error_code code;
    const auto time = fs::last_write_time(file.parent_path(), code);
    if (const auto before = newest.find(name); before == newest.end() || before->second < time) {
      newest[name] = time;
      found[name].clear();
    }
    if (time == newest[name]) {
      found[name][split].push_back(file);
    }
  }
  if (const auto only = found.size() == 1 ? found.begin() : found.find("default");
      only != found.end()) {
    found[""] = only->second;
  }
  return found;
}

/// Splits "train[:50%]+test" at '+' into trimmed terms.
std::vector<std::string> terms_of(const std::string& split) {
  std::vector<std::string> terms;
  std::istringstream stream(split + (split.ends_with('+') ? "+" : ""));
  for (std::string term; std::getline(stream, term, '+');) {
    const size_t begin = term.find_first_not_of(' '), end = term.find_last_not_of(' ');
    terms.push_back(begin == std::string::npos ? "" : term.substr(begin, end - begin + 1));
  }
  return terms;
}

std::string without_underscores(std::string number) {
  std::erase(number, '_');
  return number;
}

/// Returns true if the text is a slice "[FROM:TO]" in rows or percent.
bool is_part(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !text.ends_with(']')) {
    return false;
  }
  const auto is_bound = [](std::string_view bound) {
    if (bound.ends_with('%')) {
      bound.remove_suffix(1);
    } else if (bound.empty()) {
      return true;
    }
    return to_integer(std::string(bound)).has_value();
  };
  return is_bound(text.substr(1, colon - 1)) &&
         is_bound(text.substr(colon + 1, text.size() - colon - 2));
}

std::vector<std::string> names_of(const Files& files) {
  return {files.begin(), files.end()};
}

class Finder {
 public:
  Finder(const Value& tree, const EnvironmentLookup& environment, Problems& problems)
      : tree_(tree),
        environment_(environment),
        problems_(problems),
        name_(value("data", "dataset_name")),
        configuration_(value("data", "dataset_config_name")),
        revision_(value("data", "dataset_revision")) {}

  Value run() {
    Value settings = Value::map();
    if (name_.empty()) {
      return settings;
    }
    const Value& named = *tree_.find(Path{"data", "dataset_name"});
    for (const Place& place : places()) {
      const auto configurations = place.is_arrow_cache ? configurations_of_cache(place.folder)
                                                       : configurations_of_repository(place.folder);
      const auto found = configurations.find(configuration_);
      if (found != configurations.end()) {
        fill_splits(found->second, named.origin, settings);
        return settings;
      }
      for (const auto& [name, splits] : configurations) {
        if (!name.empty()) {
          configurations_.insert(name);
        }
      }
      looked_.push_back(place.folder.string());
    }
    refuse(named);
    return settings;
  }

 private:
  std::string value(const char* section, const char* key) const {
    const Value* const found = tree_.find(Path{section, key});
    return found != nullptr && found->is_scalar() ? found->text : "";
  }

  /// Returns true if a cache folder "org<separator>name" belongs to the dataset. A name without an
  /// organization matches any organization.
  bool is_of_name(std::string folder, const std::string& separator) const {
    std::string wanted = lower_case(name_);
    folder = lower_case(folder);
    if (const size_t slash = wanted.find('/'); slash != std::string::npos) {
      wanted.replace(slash, 1, separator);
      return folder == wanted;
    }
    return folder == wanted || folder.ends_with(separator + wanted);
  }

  Files folders_of(
      const fs::path& cache, const std::string& prefix, const std::string& separator) const {
    Files folders;
    std::error_code code;
    for (const fs::directory_entry& entry : fs::directory_iterator(cache, code)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && is_of_name(name.substr(prefix.size()), separator)) {
        folders.push_back(entry.path());
      }
    }
    std::ranges::sort(folders);
    return folders;
  }

  std::vector<Place> places() {
    std::vector<Place> found;
    std::error_code code;
    if (const fs::path own = expand_home(name_, environment_); fs::is_directory(own, code)) {
      return {{own}};
    }
    const fs::path hub = hub_cache_folder(environment_);
    const fs::path arrow = datasets_cache_folder(environment_);
    for (const fs::path& repository : folders_of(hub, "datasets--", "--")) {
      const std::string revision = revision_.empty() ? "main" : revision_;
      std::ifstream reference(repository / "refs" / revision);
      std::string commit;
      std::getline(reference, commit);
      const fs::path snapshot = repository / "snapshots" / (commit.empty() ? revision : commit);
      if (fs::is_directory(snapshot, code)) {
        found.push_back({snapshot});
      } else {
        looked_.push_back(snapshot.string());
      }
    }
    if (revision_.empty()) {
      for (const fs::path& folder : folders_of(arrow, "", "___")) {
        found.push_back({folder, true});
      }
    }
    if (found.empty()) {
      looked_.push_back(hub.string());
      looked_.push_back(arrow.string());
    }
    return found;
  }

  void refuse(const Value& named) {
    const std::string fetch = fmt::format(
        "download it on a machine with network access: hf download --repo-type dataset {}{}",
        name_,
        revision_.empty() ? "" : " --revision " + revision_);
    if (configurations_.empty()) {
      problems_.add(
          "data.dataset_name",
          named.origin,
          fmt::format(
              "dataset '{}' not found on this machine; looked in {}",
              name_,
              fmt::join(looked_, ", ")),
          fetch);
      return;
    }
    const std::vector<std::string> names(configurations_.begin(), configurations_.end());
    const Value* const asked = tree_.find(Path{"data", "dataset_config_name"});
    problems_.add(
        "data.dataset_config_name",
        configuration_.empty() ? named.origin : asked->origin,
        fmt::format(
            "{} has {}{}.{}",
            name_,
            configuration_.empty() ? "several: "
                                   : fmt::format("no '{}' in the cache, but ", configuration_),
            fmt::join(names, ", "),
            did_you_mean(configuration_, names)),
        configuration_.empty() ? fmt::format("data.dataset_config_name={}", names.front()) : fetch);
  }

  void fill_splits(const Splits& splits, const Origin& origin, Value& settings) {
    const bool wants_test =
        !value("data", "test_split").empty() || value("training", "do_predict") == "true";
    fill_split(splits, "train", "train_split", "train", origin, settings);
    fill_split(splits, "validation", "validation_split", "", origin, settings);
    if (!value("data", "validation_mm_split").empty()) {
      fill_split(splits, "validation_mm", "validation_mm_split", "", origin, settings);
    }
    if (wants_test) {
      fill_split(splits, "test", "test_split", "test", origin, settings);
    }
    if (!value("data", "test_mm_split").empty()) {
      fill_split(splits, "test_mm", "test_mm_split", "", origin, settings);
    }
  }

  /// Sets a key to the files of the requested split or, if no split is requested, of the split
  /// `needed`. An empty `needed` makes the key optional.
  void fill_split(
      const Splits& splits,
      const char* key,
      const char* split_key,
      const std::string& needed,
      const Origin& origin,
      Value& settings) {
    const std::string asked = value("data", split_key);
    Value files = Value::list();
    for (const std::string& term : terms_of(asked.empty() ? key : asked)) {
      const size_t open = term.find('[');
      const std::string split = term.substr(0, open);
      const std::string part =
          open == std::string::npos ? "" : without_underscores(term.substr(open));
      const auto found = splits.find(split);
      if (found == splits.end()) {
        if (!asked.empty() || !needed.empty()) {
          refuse_split(splits, split_key, split);
        }
        return;
      }
      if (!part.empty() && !is_part(part)) {
        const Value* const origin_of = tree_.find(Path{"data", split_key});
        problems_.add(
            fmt::format("data.{}", split_key),
            origin_of->origin,
            fmt::format("'{}' is not a valid split slice", part),
            "write NAME[FROM:TO] in rows or percent, where FROM and TO are optional and may be "
            "negative: train[:80%], train[10:100], train[-5%:]; + concatenates slices");
        return;
      }
      for (const std::string& word : words_of(names_of(found->second), part)) {
        files.items.push_back(Value::scalar(word, true));
      }
    }
    set_origin(files, {.source = Origin::Source::kDerived, .place = "data.dataset_name"});
    files.origin.order = origin.order;
    merge_at(settings, {"data", key}, std::move(files));
  }

  void refuse_split(const Splits& splits, const char* split_key, const std::string& split) {
    std::vector<std::string> names;
    for (const auto& [name, files] : splits) {
      names.push_back(name);
    }
    const Value* const asked = tree_.find(Path{"data", split_key});
    problems_.add(
        fmt::format("data.{}", split_key),
        asked == nullptr ? Origin{} : asked->origin,
        fmt::format(
            "{} has no split '{}'; available: {}.{}",
            name_,
            split,
            fmt::join(names, ", "),
            did_you_mean(split, names)),
        fmt::format("data.{}={}", split_key, names.front()));
  }

  const Value& tree_;
  const EnvironmentLookup& environment_;
  Problems& problems_;
  std::string name_, configuration_, revision_;
  std::vector<std::string> looked_;
  std::set<std::string> configurations_;
};

}  // namespace

Value dataset_settings(
    const Value& tree, const EnvironmentLookup& environment, Problems& problems) {
  return Finder(tree, environment, problems).run();
}

}  // namespace lockstep::config
