// What was once found out about a big file, kept until the file changes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::data {

/// Remembers one text a file and purpose, in a folder. It holds as long as the file's device,
/// inode, size and times (modified, changed: nanoseconds) are what they were when the reading of it
/// began, and these times lay two seconds back by then, so that no later write can have the same
/// ones. Failures to read or write a mark only cost the saving.
class FileMarks {
 public:
  /// Files smaller than `least` are not remembered: reading them costs less than it can save.
  explicit FileMarks(
      std::filesystem::path folder,
      uint64_t least = uint64_t{1} << 26,
      int64_t settled_seconds = 2);

  /// What was remembered of `path` as it is now.
  std::optional<std::string> find(
      const std::filesystem::path& path, std::string_view purpose) const;
  /// The file's state, taken before it is read; for remember(). Nothing where it is not to be
  /// remembered.
  std::optional<std::string> state_of(const std::filesystem::path& path) const;
  void remember(
      const std::filesystem::path& path,
      std::string_view purpose,
      const std::optional<std::string>& state,
      const std::string& found) const;

 private:
  std::filesystem::path mark_of(const std::filesystem::path& path, std::string_view purpose) const;

  std::filesystem::path folder_;
  uint64_t least_;
  int64_t settled_seconds_;
};

}  // namespace lockstep::data
