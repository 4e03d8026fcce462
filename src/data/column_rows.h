// Reads the rows of Parquet and Arrow files as JSON objects. liblockstep_arrow.so (src/arrow) reads
// the files with Arrow's C++ library. It is loaded when the first such file is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/records.h"

namespace lockstep::data {

/// Interface of the library: reads the rows of a file in order, in bounded memory.
class ColumnRows {
 public:
  virtual ~ColumnRows() = default;
  /// Writes the next row to `json`, as a JSON object with its keys in the order of the columns.
  /// Returns false at the end of the file or after an error, which `problem` then describes.
  virtual bool next(std::string& json, std::string& problem) = 0;
};

/// Entry point of the library, `lockstep_open_columns`. Returns null after an error, which
/// `problem` describes.
using OpenColumnRows = ColumnRows* (*)(const char* path, std::string& problem);

/// Returns true if the name (.parquet, .arrow) or the first bytes identify a Parquet or Arrow file.
bool has_columns(const std::filesystem::path& path);
/// Returns "FILE, row 3" for Parquet and Arrow files, otherwise "FILE, line 3".
std::string place_in(const std::filesystem::path& path, int64_t line);

/// Opens a Parquet or Arrow file (IPC file or stream). Line numbers of the records are row numbers.
/// Throws Error (environment) if the library is missing. Throws Error (data) if the file is damaged
/// or truncated, or if it has a column that JSON cannot represent.
std::unique_ptr<RecordReader> open_columns(const std::filesystem::path& path);

}  // namespace lockstep::data
