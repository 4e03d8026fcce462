// Cache of facts about large files, valid until the file changes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::data {

/// Stores one string per file and purpose in a folder. It is valid while the file's device, inode,
/// size and times (modified, changed: nanoseconds) are those at the start of reading, and only if
/// these times were two seconds old by then, so that no later write can have the same ones.
/// Failures to read or write an entry only cost the saving.
class FileMarks {
 public:
  /// Files smaller than `least` are not remembered: reading them costs less than it can save.
  explicit FileMarks(
      std::filesystem::path folder,
      uint64_t least = uint64_t{1} << 26,
      int64_t settled_seconds = 2);

  /// Returns the stored string of `path` in its present state.
  std::optional<std::string> find(
      const std::filesystem::path& path, std::string_view purpose) const;
  /// Returns the file's state for remember(); call before reading the file. Returns nullopt if it
  /// must not be stored.
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
