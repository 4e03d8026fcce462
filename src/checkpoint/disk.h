// Interface of the file operations of a save. With another implementation, tests simulate a full
// disk, or fail or stop at the n-th operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/file.h"

namespace lockstep::checkpoint {

/// Operations with which a save modifies the file system. If one fails, it throws Error
/// (checkpoint) with the path and the system's reason. Thread-safe, because ranks may be threads.
class Disk {
 public:
  virtual ~Disk() = default;

  virtual void create_folder(const std::filesystem::path& folder);
  /// Creates a file of `size` bytes. Reserves its blocks if the file system supports this, so that
  /// a full disk is reported before anything is written.
  virtual void create_file(const std::filesystem::path& path, uint64_t size);
  virtual void write(File& file, uint64_t offset, std::span<const std::byte> bytes);
  virtual void sync(File& file);
  virtual void sync_folder(const std::filesystem::path& folder);
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Exchanges two folders atomically. Returns false if the file system does not support this.
  virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  /// Removes a file, or a folder with its contents, if it exists.
  virtual void remove(const std::filesystem::path& path);

  /// write_new() creates and writes a whole file. write_whole() also syncs it.
  void write_new(const std::filesystem::path& path, std::string_view text);
  void write_whole(const std::filesystem::path& path, std::string_view text);
};

/// Returns the local file system.
Disk& system_disk();

}  // namespace lockstep::checkpoint
