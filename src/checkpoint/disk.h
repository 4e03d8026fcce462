// The file operations of a save, behind one seam: a test's disk fills up, fails or dies at the n-th
// of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/file.h"

namespace lockstep::checkpoint {

/// Every change that a save makes to a disk. Each throws an Error (checkpoint) that names the path
/// and the system's reason. Thread-safe: ranks may be threads.
class Disk {
 public:
  virtual ~Disk() = default;

  virtual void create_folder(const std::filesystem::path& folder);
  /// An empty file of `size` bytes, whose blocks are reserved where the file system can: a disk
  /// without room says so here, before anything is written.
  virtual void create_file(const std::filesystem::path& path, uint64_t size);
  virtual void write(File& file, uint64_t offset, std::span<const std::byte> bytes);
  virtual void sync(File& file);
  virtual void sync_folder(const std::filesystem::path& folder);
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Swaps two folders in one step; false where the file system cannot.
  virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  /// A file, or a folder with all that is in it; nothing where it is not there.
  virtual void remove(const std::filesystem::path& path);

  /// create_file and write of a whole file; write_whole: and its sync.
  void write_new(const std::filesystem::path& path, std::string_view text);
  void write_whole(const std::filesystem::path& path, std::string_view text);
};

/// The real one.
Disk& system_disk();

}  // namespace lockstep::checkpoint
