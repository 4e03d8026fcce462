// Files: mapped, read whole, written whole into place, and by offset. Every failure is an Error
// that names the path and the system's reason; a full disk is told as such.
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

/// A file mapped read-only. Move-only; the bytes live as long as it does.
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

/// Has the system read a MappedFile's bytes, which are used soon, in large blocks; returns once it
/// was told, which is before they are there.
void expect_pages(std::span<const std::byte> bytes);
/// Lets whole pages of a MappedFile's bytes, which were read, leave the memory of the process; who
/// reads them again has them again.
void forget_pages(std::span<const std::byte> bytes);

/// An open file, read and written by offset. Move-only; closed by the destructor.
class File {
 public:
  /// kCreate truncates; kCreateNew wants that there is nothing, not even a link; kWrite opens what
  /// is there.
  enum class Mode { kRead, kCreate, kCreateNew, kWrite };
  File(const std::filesystem::path& path, Mode mode, ErrorKind kind = ErrorKind::kCheckpoint);
  File(File&& other) noexcept;
  File& operator=(File&& other) = delete;
  ~File();
  /// What is there, for writes past the page cache (O_DIRECT) of whole pages from pages of memory;
  /// nothing where that is not known to be the faster way: on other file systems than ext4 and XFS.
  static std::optional<File> open_direct(
      const std::filesystem::path& path, ErrorKind kind = ErrorKind::kCheckpoint);

  void resize(uint64_t size);
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// Fills `bytes` whole; a file that ends before is an error.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;
  /// To the device: fsync.
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

/// What a text that is read whole may hold: more is no text but a mistake.
inline constexpr uint64_t kLongestText = uint64_t{1} << 30;
/// The whole file. An Error where it is none (a pipe, a device), or holds more than `longest`.
std::string read_file(
    const std::filesystem::path& path,
    ErrorKind kind = ErrorKind::kData,
    uint64_t longest = kLongestText);
/// Writes to a temporary name beside `path`, syncs, renames, syncs the folder: a reader sees the
/// old text or the new one, whatever happens.
void write_file_atomically(
    const std::filesystem::path& path,
    std::string_view text,
    ErrorKind kind = ErrorKind::kCheckpoint);
/// fsync of a folder, so that a rename in it is on the device.
void sync_folder(const std::filesystem::path& folder);
/// mkdir -p, with an Error that names the folder.
void create_folders(const std::filesystem::path& folder, ErrorKind kind = ErrorKind::kCheckpoint);
/// Whether some process holds a lock on the file (fcntl's, of an open file). False where there is
/// no such file.
bool is_locked(const std::filesystem::path& path);
/// The Error of a failed system call on `path`, from errno: "cannot write PATH: No space left on
/// device".
Error system_error(ErrorKind kind, std::string_view action, const std::filesystem::path& path);

}  // namespace lockstep
