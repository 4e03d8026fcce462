// Opens Parquet and Arrow files with liblockstep_arrow.so.
#include <array>
#include <fstream>
#include <utility>

#include <dlfcn.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/text.h"
#include "data/column_rows.h"

namespace lockstep::data {
namespace {

constexpr const char* kArrowLibrary = "liblockstep_arrow.so";

OpenColumnRows column_library(const std::filesystem::path& path) {
  static const std::pair<OpenColumnRows, std::string> loaded =
      []() -> std::pair<OpenColumnRows, std::string> {
    void* library = ::dlopen(kArrowLibrary, RTLD_NOW | RTLD_LOCAL);
    void* entry = library == nullptr ? nullptr : ::dlsym(library, "lockstep_open_columns");
    if (entry == nullptr) {
      return {nullptr, ::dlerror()};
    }
    return {reinterpret_cast<OpenColumnRows>(entry), ""};
  }();
  if (loaded.first == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "{} requires {}, which cannot be opened: {}",
            path.string(),
            kArrowLibrary,
            loaded.second),
        "`make build` builds it if pyarrow is installed, or export the data as JSON lines: "
        "datasets' to_json, or DuckDB's COPY");
  }
  return loaded.first;
}

bool is_named_so(const std::filesystem::path& path) {
  const std::string extension = lower_case(path.extension().string());
  return extension == ".parquet" || extension == ".arrow";
}

class ColumnReader final : public RecordReader {
 public:
  explicit ColumnReader(const std::filesystem::path& path) : path_(path.string()) {
    // The library would wait for the writer of a pipe.
    const File readable(path, File::Mode::kRead, ErrorKind::kData);
    std::string problem;
    rows_.reset(column_library(path)(path_.c_str(), problem));
    check(problem);
  }

  bool next(Record& record) override {
    std::string problem;
    record = Record{};
    const bool found = rows_->next(record.text, problem);
    check(problem);
    record.line = ++row_;
    return found;
  }

 private:
  void check(const std::string& problem) const {
    if (!problem.empty()) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: {}", path_, problem),
          "download the file again, or export it as JSON lines");
    }
  }

  std::string path_;
  std::unique_ptr<ColumnRows> rows_;
  int64_t row_ = 0;
};

}  // namespace

bool has_columns(const std::filesystem::path& path) {
  std::error_code none;
  std::array<char, 6> bytes{};
  if (std::filesystem::is_regular_file(path, none)) {
    std::ifstream(path, std::ios::binary).read(bytes.data(), bytes.size());
  }
  const std::string_view start(bytes.data(), bytes.size());
  return is_named_so(path) || start.starts_with("PAR1") || start == "ARROW1";
}

std::string place_in(const std::filesystem::path& path, int64_t line) {
  return fmt::format("{}, {} {}", path.string(), is_named_so(path) ? "row" : "line", line);
}

std::unique_ptr<RecordReader> open_columns(const std::filesystem::path& path) {
  return std::make_unique<ColumnReader>(path);
}

}  // namespace lockstep::data
