// Files: memory-mapped, whole, and by offset. Every failure is an Error with the path and the
// system's reason. A full disk has its own message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lockstep {

/// Read-only memory-mapped file. Move-only. The bytes are valid for the lifetime of the object.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kData);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Requests read-ahead of bytes of a MappedFile in large blocks. Does not wait for the data.
void expect_pages(std::span<const std::byte> bytes);
/// Releases whole pages of a MappedFile from process memory. Later accesses read them again.
void forget_pages(std::span<const std::byte> bytes);

/// Open file that is read and written by offset. Move-only. Closed by the destructor.
class File {
 public:
  /// kCreate truncates an existing file. kCreateNew fails if the path exists, even as a link.
  /// kWrite opens an existing file.
  enum class Mode { kRead, kCreate, kCreateNew, kWrite };
  File(const std::filesystem::path& path, Mode mode, ErrorKind kind = ErrorKind::kCheckpoint);
  File(File&& other) noexcept;
  File& operator=(File&& other) = delete;
  ~File();
  /// Opens an existing file for writes that bypass the page cache (O_DIRECT). Writes must be whole
  /// pages from aligned memory. Returns nullopt on file systems other than ext4 and XFS, where this
  /// is not known to be faster.
  static std::optional<File> open_direct(
      const std::filesystem::path& path, ErrorKind kind = ErrorKind::kCheckpoint);

  void resize(uint64_t size);
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// Fills `bytes`. Throws an Error if the file ends earlier.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;
  /// Flushes the file to the device (fsync).
  void sync();
  uint64_t size() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  File(int descriptor, std::filesystem::path path, ErrorKind kind)
      : descriptor_(descriptor),
        path_(std::move(path)),
        kind_(kind) {}
  [[noreturn]] void fail(const char* action) const;
  int descriptor_ = -1;
  std::filesystem::path path_;
  ErrorKind kind_;
};

/// Maximum size of a text file that is read as a whole.
inline constexpr uint64_t kLongestText = uint64_t{1} << 30;
/// Reads a whole file. Throws an Error if it is not a regular file (a pipe, a device) or larger
/// than `longest`.
std::string read_file(
    const std::filesystem::path& path,
    ErrorKind kind = ErrorKind::kData,
    uint64_t longest = kLongestText);
/// Replaces a file atomically: a reader always sees the complete old or new text. Writes to a
/// temporary file in the same folder, syncs it, renames it to `path`, and syncs the folder.
void write_file_atomically(
    const std::filesystem::path& path,
    std::string_view text,
    ErrorKind kind = ErrorKind::kCheckpoint);
/// Flushes a folder (fsync) so that renames in it are on the device.
void sync_folder(const std::filesystem::path& folder);
/// Creates folders like mkdir -p. Throws an Error with the folder.
void create_folders(const std::filesystem::path& folder, ErrorKind kind = ErrorKind::kCheckpoint);
/// Returns true if a process holds a lock (fcntl, open file description) on the file. Returns false
/// if the file does not exist.
bool is_locked(const std::filesystem::path& path);
/// Returns the Error for a failed system call on `path`, from errno: "cannot write PATH: No space
/// left on device".
Error system_error(ErrorKind kind, std::string_view action, const std::filesystem::path& path);

}  // namespace lockstep
