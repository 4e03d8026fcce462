// Record of a run: a file with one JSON object per line that grows at its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace lockstep::monitor {

/// Returns the offset after the last complete line of a file. Reads from the end.
uint64_t end_of_lines(const File& file);

/// Writer of a record. Each line is written immediately with one call, so a killed run loses no
/// complete line.
class LineFile {
 public:
  /// Opens a record to add lines to all that it contains. Terminates an incomplete last line.
  /// Throws Error (checkpoint) if the file is not writable.
  static LineFile at_end(const std::filesystem::path& path);

  /// Opens a record whose lines each have a "step", in ascending order. Keeps the lines up to step
  /// `after`, or none if it is 0 or less. Reads from the end and truncates the file, so the time
  /// does not depend on the length of what is kept. Lines that are damaged never end a run: if one
  /// follows the last line that is kept, the rest of the file is moved to PATH.damaged with a
  /// warning, or the whole file if its lines cannot be found. Throws Error (checkpoint) if the file
  /// is not writable.
  static LineFile after_step(const std::filesystem::path& path, int64_t after);

  /// Adds a line, which has no newline, at the end of the file: also if another process has changed
  /// its length. Throws Error (checkpoint) that names the file and the reason, such as a full disk;
  /// the file then ends as before.
  void append(std::string_view line);

 private:
  explicit LineFile(File file) : file_(std::move(file)) {}

  File file_;
};

}  // namespace lockstep::monitor
