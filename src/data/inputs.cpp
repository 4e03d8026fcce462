// Expands file names, globs and folders.
#include "data/inputs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <glob.h>

#include "base/dataset_folder.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/text.h"
#include "data/records.h"
#include "objects/fetch.h"

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
      {".parquet", Format::kJson},  // rows are converted to JSON objects
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

/// Returns the names in the folder of a missing file, for suggestions.
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
    return fmt::format(" The folder {} does not exist either.", folder.string());
  }
  const std::string nearest = did_you_mean(missing.filename().string(), names);
  const auto longer = std::ranges::find_if(names, [&](const std::string& name) {
    return name.starts_with(missing.stem().string()) &&
           name.ends_with(missing.extension().string());
  });
  return !nearest.empty() || longer == names.end() || missing.stem().string().size() < 4
             ? nearest
             : fmt::format(" Did you mean '{}'?", *longer);
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

int64_t count_rows(const InputFile& input) {
  const auto records = input.format == Format::kJson
                           ? open_json(input.path)
                           : open_table(input.path, input.format == Format::kTsv ? '\t' : ',');
  Record record;
  int64_t rows = 0;
  while (records->next(record)) {
    ++rows;
  }
  return rows;
}

/// Bound of a slice. No value: invalid.
struct Bound {
  std::optional<int64_t> value;
  bool is_percent = false;
};
std::optional<Bound> read_bound(std::string_view text) {
  Bound bound;
  if (text.empty()) {
    return bound;
  }
  bound.is_percent = text.ends_with('%');
  text.remove_suffix(bound.is_percent ? 1 : 0);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  bound.value = value;
  return bound;
}

/// Throws Error (data) for the folder of a DatasetDict, because its splits are different datasets.
void refuse_splits(const fs::path& folder, std::string_view key) {
  std::error_code ignored;
  if (!fs::exists(folder / "dataset_dict.json", ignored)) {
    return;
  }
  std::vector<std::string> splits;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) {
      splits.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(splits);
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{}: {} contains the splits {} of a dataset",
          key,
          folder.string(),
          fmt::join(splits, ", ")),
      fmt::format(
          "select one: {}={}, or set the folder as data.dataset_name",
          key,
          (folder / (splits.empty() ? "train" : splits.front())).string()));
}

class Collector {
 public:
  Collector(Format format, std::string_view key) : format_(format), key_(key) {}

  void add_word(const std::string& word) {
    std::error_code ignored;
    if (fs::exists(word, ignored)) {  // the name of the file may contain glob characters
      add_path(word);
      return;
    }
    const auto [files, part] = split_part(word, key_);
    if (!part) {
      add_words(word);
      return;
    }
    Collector of_part(format_, key_);
    of_part.add_word(files);
    take_part(of_part.take(), *part, word);
  }

  std::vector<InputFile> take() { return std::move(files_); }

 private:
  void take_part(std::vector<InputFile> files, const RowPart& part, const std::string& word) {
    std::vector<int64_t> ends{0};
    for (const InputFile& file : files) {
      if (file.format == Format::kText) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format(
                "{}: {}: {} is plain text, which has no rows", key_, word, file.path.string()),
            "slices require JSON lines, CSV, TSV or Parquet; for text, data.validation_fraction "
            "holds out documents");
      }
      ends.push_back(ends.back() + count_rows(file));
    }
    const RowRange range = part.of(ends.back());
    if (range.begin >= range.end) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: {} selects no rows; the files have {}", key_, word, ends.back()),
          "choose another slice");
    }
    for (size_t i = 0; i < files.size(); ++i) {
      const int64_t rows = ends[i + 1] - ends[i];
      const RowRange inside{
          std::clamp<int64_t>(range.begin - ends[i], 0, rows),
          std::clamp<int64_t>(range.end - ends[i], 0, rows)};
      if (inside.begin < inside.end) {
        add_file(files[i].path, files[i].format, inside);
      }
    }
  }

  void add_words(const std::string& word) {
    std::error_code ignored;
    if (word.empty()) {
      throw Error(ErrorKind::kData, fmt::format("{} contains an empty name", key_));
    }
    if (objects::is_remote(word)) {
      add_remote(word);
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
          fmt::format("{}: the file {} does not exist.{}", key_, word, near_names(word)),
          fs::path(word).is_absolute()
              ? "check the folder: ls " + fs::path(word).parent_path().string()
              : "paths are relative to " + fs::current_path(ignored).string());
    }
    for (const fs::path& path : paths) {
      add_path(path);
    }
  }

  /// Downloads files from an object store and adds the copies. In a folder, selects the same files
  /// as in a local folder.
  void add_remote(const std::string& word) {
    const auto wanted = [](std::string_view key) {
      const fs::path path(key);
      return !path.filename().string().starts_with('.') && format_from_name(path);
    };
    const std::vector<fs::path> paths = objects::fetch_matching(word, wanted);
    if (paths.empty()) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: {} does not contain any file", key_, word),
          "check the name: an object, a pattern with * and ?, or a folder with files of known "
          "extensions");
    }
    for (const fs::path& path : paths) {
      add_path(path);
    }
  }

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
              "{}: the format of {} cannot be determined from its name (known: {})",
              key_,
              path.string(),
              kKnownNames),
          "set it: data.format=text, json, csv or tsv");
    }
    add_file(path, *format);
  }

  void add_folder(const fs::path& folder) {
    refuse_splits(folder, key_);
    std::vector<std::pair<fs::path, Format>> found;
    std::vector<std::string> unread;
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
      if (!walk->is_regular_file(code) || describes_dataset(path)) {
        continue;
      }
      if (const std::optional<Format> named = format_from_name(path)) {
        found.emplace_back(path, format_ == Format::kAuto ? *named : format_);
      } else {
        unread.push_back(path.lexically_relative(folder).string());
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
              "{}: the folder {} contains no data files (known names: {})",
              key_,
              folder.string(),
              kKnownNames),
          "name the files themselves, with data.format if their names do not show the format");
    }
    if (!unread.empty()) {
      constexpr size_t kShown = 3;
      const auto shown = std::min(kShown, unread.size());
      log_warning(
          "{}: skipped {} files of {} with unknown names: {}{}",
          key_,
          unread.size(),
          folder.string(),
          fmt::join(unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          unread.size() > shown ? ", ..." : "");
    }
    std::sort(found.begin(), found.end());
    for (const auto& [path, format] : found) {
      add_file(path, format);
    }
  }

  void add_file(const fs::path& path, Format format, std::optional<RowRange> rows = {}) {
    std::error_code code;
    const fs::path canonical = fs::weakly_canonical(path, code);
    const RowRange key = rows.value_or(RowRange{-1, -1});
    if (seen_.emplace(code ? path : canonical, key.begin, key.end).second) {
      files_.push_back({path, format, rows});
    }
  }

  Format format_;
  std::string key_;
  std::vector<InputFile> files_;
  std::set<std::tuple<fs::path, int64_t, int64_t>> seen_;
};

}  // namespace

RowRange RowPart::of(int64_t rows) const {
  const auto at = [&](const std::optional<int64_t>& bound, int64_t otherwise) {
    if (!bound) {
      return otherwise;
    }
    // Round half to even, like Python's round().
    const int64_t place =
        is_percent ? static_cast<int64_t>(std::nearbyint(
                         static_cast<double>(*bound) * static_cast<double>(rows) / 100.0))
                   : *bound;
    return std::clamp<int64_t>(*bound < 0 ? rows + place : place, 0, rows);
  };
  return {at(from, 0), at(to, rows)};
}

WordWithPart split_part(const std::string& word, std::string_view key) {
  const size_t open = word.rfind('['), colon = word.find(':', open == word.npos ? 0 : open);
  if (!word.ends_with(']') || open == word.npos || colon == word.npos) {
    return {word, {}};
  }
  const std::string_view text(word);
  const auto from = read_bound(text.substr(open + 1, colon - open - 1)),
             to = read_bound(text.substr(colon + 1, word.size() - colon - 2));
  if (!from || !to) {
    return {word, {}};  // a glob
  }
  const RowPart part{from->value, to->value, from->is_percent || to->is_percent};
  for (const std::optional<int64_t>& bound : {part.from, part.to}) {
    if (part.is_percent && std::abs(bound.value_or(0)) > 100) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{}: {}: {}% is out of range", key, word, *bound),
          "percentages must be between -100% and 100%");
    }
  }
  return {word.substr(0, open), part};
}

std::vector<InputFile> find_inputs(
    std::span<const std::string> words, Format format, std::string_view key) {
  Collector collector(format, key);
  for (const std::string& word : words) {
    collector.add_word(word);
  }
  return collector.take();
}

}  // namespace lockstep::data
