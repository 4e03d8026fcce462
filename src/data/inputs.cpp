#include "data/inputs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <glob.h>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKnownNames =
    ".txt .text .md .tokens .raw .json .jsonl .ndjson .csv .tsv, with or without .gz or .zst; "
    ".parquet .arrow";

std::optional<Format> format_from_name(fs::path path) {
  static constexpr std::array<std::pair<std::string_view, Format>, 12> kExtensions{{
      {".txt", Format::kText},
      {".text", Format::kText},
      {".md", Format::kText},
      {".tokens", Format::kText},
      {".raw", Format::kText},
      {".json", Format::kJson},
      {".jsonl", Format::kJson},
      {".ndjson", Format::kJson},
      {".parquet", Format::kJson},  // its rows are objects, too
      {".arrow", Format::kJson},
      {".csv", Format::kCsv},
      {".tsv", Format::kTsv},
  }};
  std::string extension = lower_case(path.extension().string());
  if (extension == ".gz" || extension == ".zst" || extension == ".zstd") {
    path = path.stem();
    extension = lower_case(path.extension().string());
  }
  for (const auto& [known, format] : kExtensions) {
    if (known == extension) {
      return format;
    }
  }
  return std::nullopt;
}

/// Names beside a missing file, for "did you mean".
std::string near_names(const fs::path& missing) {
  std::vector<std::string> names;
  std::error_code ignored;
  const fs::path folder = missing.has_parent_path() ? missing.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
    if (names.size() == 1000) {
      break;
    }
  }
  if (names.empty() && !fs::exists(folder, ignored)) {
    return fmt::format(" There is no folder {} either.", folder.string());
  }
  return did_you_mean(missing.filename().string(), names);
}

std::vector<fs::path> expand_glob(const std::string& word) {
  glob_t found{};
  const int result = ::glob(word.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  std::vector<fs::path> paths;
  if (result == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

class Collector {
 public:
  Collector(Format format, std::string_view key) : format_(format), key_(key) {}

  void add_word(const std::string& word) {
    std::error_code ignored;
    if (word.empty()) {
      throw Error(ErrorKind::kData, fmt::format("{} holds an empty name", key_));
    }
    if (fs::exists(word, ignored)) {  // also a file whose name has glob characters
      add_path(word);
      return;
    }
    const bool pattern = word.find_first_of("*?[{") != std::string::npos;
    const std::vector<fs::path> paths = expand_glob(word);
    if (paths.empty() && pattern) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: no file matches {}", key_, word),
          "check the folder and the pattern: ls " + word);
    }
    if (paths.empty() || (!pattern && !fs::exists(paths.front(), ignored))) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: there is no file {}.{}", key_, word, near_names(word)),
          "paths are relative to " + fs::current_path(ignored).string());
    }
    for (const fs::path& path : paths) {
      add_path(path);
    }
  }

  std::vector<InputFile> take() { return std::move(files_); }

 private:
  void add_path(const fs::path& path) {
    if (fs::is_directory(path)) {
      add_folder(path);
      return;
    }
    const std::optional<Format> format =
        format_ == Format::kAuto ? format_from_name(path) : std::optional(format_);
    if (!format) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: the name of {} does not tell its format (known: {})",
              key_,
              path.string(),
              kKnownNames),
          "give it: data.format=text, json, csv or tsv");
    }
    add_file(path, *format);
  }

  void add_folder(const fs::path& folder) {
    std::vector<std::pair<fs::path, Format>> found;
    std::error_code code;
    auto walk = fs::recursive_directory_iterator(folder, code);
    for (; !code && walk != fs::recursive_directory_iterator(); walk.increment(code)) {
      const fs::path& path = walk->path();
      if (path.filename().string().starts_with('.')) {
        if (walk->is_directory(code)) {
          walk.disable_recursion_pending();
        }
        continue;
      }
      const std::optional<Format> named = format_from_name(path);
      if (walk->is_regular_file(code) && named) {
        found.emplace_back(path, format_ == Format::kAuto ? *named : format_);
      }
    }
    if (code) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: cannot read the folder {}: {}", key_, folder.string(), code.message()));
    }
    if (found.empty()) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: the folder {} has no file of text (known names: {})",
              key_,
              folder.string(),
              kKnownNames),
          "name the files themselves, with data.format if their names do not tell it");
    }
    std::sort(found.begin(), found.end());
    for (const auto& [path, format] : found) {
      add_file(path, format);
    }
  }

  void add_file(const fs::path& path, Format format) {
    std::error_code code;
    const fs::path canonical = fs::weakly_canonical(path, code);
    if (seen_.insert(code ? path : canonical).second) {
      files_.push_back({path, format});
    }
  }

  Format format_;
  std::string key_;
  std::vector<InputFile> files_;
  std::set<fs::path> seen_;
};

}  // namespace

std::vector<InputFile> find_inputs(
    std::span<const std::string> words, Format format, std::string_view key) {
  Collector collector(format, key);
  for (const std::string& word : words) {
    collector.add_word(word);
  }
  return collector.take();
}

}  // namespace lockstep::data
