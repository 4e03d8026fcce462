// Parquet and Arrow files as JSON objects, one per row, read by liblockstep_arrow.so (src/arrow)
// with Arrow's C++ library, which is opened when the first such file is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/records.h"

namespace lockstep::data {

/// Interface of the library: the rows of a file in order, in bounded memory.
class ColumnRows {
 public:
  virtual ~ColumnRows() = default;
  /// Writes the next row as a JSON object with its keys in the order of the columns. Returns false
  /// at the end, or if `problem` describes an error.
  virtual bool next(std::string& json, std::string& problem) = 0;
};

/// The library's entry point `lockstep_open_columns`; returns null if `problem` describes an error.
using OpenColumnRows = ColumnRows* (*)(const char* path, std::string& problem);

/// True if the name (.parquet, .arrow) or the first bytes identify such a file.
bool has_columns(const std::filesystem::path& path);
/// Returns "FILE, row 3" for Parquet and Arrow files, otherwise "FILE, line 3".
std::string place_in(const std::filesystem::path& path, int64_t line);

/// Rows of a Parquet or Arrow file (IPC file or stream), each with its number as its line. Throws
/// Error (environment) if the library is missing; Error (data) if the file is damaged or
/// truncated, or has a column that JSON cannot represent.
std::unique_ptr<RecordReader> open_columns(const std::filesystem::path& path);

}  // namespace lockstep::data
