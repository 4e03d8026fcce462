// Reader of the lines of a file that another process appends to, and that a resume truncates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::watch {

class GrowingFile {
 public:
  /// A missing file counts as empty.
  explicit GrowingFile(std::filesystem::path path) : path_(std::move(path)) {}

  /// Passes the complete lines that were added since the last call to `take`, several at a time. An
  /// incomplete last line is left for the next call. If the file was truncated or re-created, calls
  /// `restart` first and reads it from the beginning. Returns true if anything changed. Throws
  /// Error (data) if the file cannot be read.
  bool read(
      const std::function<void()>& restart,
      const std::function<void(std::string_view lines)>& take);

  const std::filesystem::path& path() const { return path_; }
  /// True if no line has been read.
  bool is_at_begin() const { return end_ == 0; }

 private:
  std::filesystem::path path_;
  uint64_t end_ = 0;  // bytes read
  std::string last_;  // last bytes read, used to detect a re-created file
};

}  // namespace lockstep::watch
