// File operations of a save, as an interface: tests can simulate a full disk, or fail or stop at
// the n-th operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/file.h"

namespace lockstep::checkpoint {

/// All file system modifications of a save. Each method throws an Error (checkpoint) with the path
/// and the system's reason. Thread-safe, because ranks may be threads.
class Disk {
 public:
  virtual ~Disk() = default;

  virtual void create_folder(const std::filesystem::path& folder);
  /// Creates a file of `size` bytes and reserves its blocks if the file system can, so that a full
  /// disk is reported before anything is written.
  virtual void create_file(const std::filesystem::path& path, uint64_t size);
  virtual void write(File& file, uint64_t offset, std::span<const std::byte> bytes);
  virtual void sync(File& file);
  virtual void sync_folder(const std::filesystem::path& folder);
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Exchanges two folders atomically; returns false if the file system cannot.
  virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  /// Removes a file, or a folder and its contents, if it exists.
  virtual void remove(const std::filesystem::path& path);

  /// write_new creates and writes a whole file; write_whole also syncs it.
  void write_new(const std::filesystem::path& path, std::string_view text);
  void write_whole(const std::filesystem::path& path, std::string_view text);
};

/// The local file system.
Disk& system_disk();

}  // namespace lockstep::checkpoint
