// Parquet and Arrow files as JSON objects, a row each. liblockstep_arrow.so reads them
// (src/arrow), with Arrow's C++ library; it is opened where such a file is met, and nowhere else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/records.h"

namespace lockstep::data {

/// What the library gives: the rows of one file from its first to its last, in bounded memory.
class ColumnRows {
 public:
  virtual ~ColumnRows() = default;
  /// The next row as a JSON object, its keys in the order of the columns. False: there is none, or
  /// `problem` says what is wrong.
  virtual bool next(std::string& json, std::string& problem) = 0;
};

/// The library's entry `lockstep_open_columns`: null where `problem` says what is wrong.
using OpenColumnRows = ColumnRows* (*)(const char* path, std::string& problem);

/// Whether a file is one of these, by its name (.parquet, .arrow) or its first bytes.
bool has_columns(const std::filesystem::path& path);
/// "FILE, line 3", and "FILE, row 3" of one of these by its name.
std::string place_in(const std::filesystem::path& path, int64_t line);

/// The rows of a Parquet file, or of Arrow's (IPC file or stream), each with its number as its
/// line. Error (kEnvironment): the library is not there. Error (kData): the file is damaged or cut
/// off, or has a column that no JSON can hold.
std::unique_ptr<RecordReader> open_columns(const std::filesystem::path& path);

}  // namespace lockstep::data
