// Cache of results of reading large files, such as hashes. An entry is valid until its file
// changes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::data {

/// Stores one string per file and purpose in a folder. An entry is valid while the file's device,
/// inode, size, modification time and change time (in nanoseconds) are the same as before it was
/// read. Files that were changed less than two seconds before that are not cached, because a later
/// write could leave the times unchanged. Errors are ignored; the file is then read again.
class FileMarks {
 public:
  /// Files smaller than `least` bytes are not cached, because reading them is cheap.
  explicit FileMarks(
      std::filesystem::path folder,
      uint64_t least = uint64_t{1} << 26,
      int64_t settled_seconds = 2);

  /// Returns the stored string of `path`, or nullopt if there is none or the file has changed.
  std::optional<std::string> find(
      const std::filesystem::path& path, std::string_view purpose) const;
  /// Returns the state of the file for remember(). Must be called before the file is read. Returns
  /// nullopt if the file must not be cached.
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
