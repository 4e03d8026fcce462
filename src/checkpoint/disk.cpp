// Implements the file operations of a save on the local file system.
#include "checkpoint/disk.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::checkpoint {

void Disk::create_folder(const std::filesystem::path& folder) {
  create_folders(folder);
}

void Disk::create_file(const std::filesystem::path& path, uint64_t size) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    throw system_error(ErrorKind::kCheckpoint, "create", path);
  }
  const auto length = static_cast<off_t>(size);
  // Use fallocate and not posix_fallocate, which writes every block if the file system cannot
  // reserve space.
  int result = size == 0 ? 0 : ::fallocate(descriptor, 0, 0, length);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)) {
    result = ::ftruncate(descriptor, length);
  }
  const int code = errno;
  ::close(descriptor);
  if (result != 0) {
    errno = code;
    throw system_error(ErrorKind::kCheckpoint, fmt::format("reserve {} bytes for", size), path);
  }
}

void Disk::write(File& file, uint64_t offset, std::span<const std::byte> bytes) {
  file.write_at(offset, bytes);
}

void Disk::sync(File& file) {
  file.sync();
}

void Disk::sync_folder(const std::filesystem::path& folder) {
  lockstep::sync_folder(folder);
}

void Disk::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw system_error(
        ErrorKind::kCheckpoint, fmt::format("rename {} to", from.filename().string()), to);
  }
}

bool Disk::exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    return false;
  }
  throw system_error(ErrorKind::kCheckpoint, "replace", b);
}

void Disk::remove(const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::remove_all(path, code);
  if (code) {
    errno = code.value();
    throw system_error(ErrorKind::kCheckpoint, "remove", path);
  }
}

void Disk::write_new(const std::filesystem::path& path, std::string_view text) {
  create_file(path, text.size());
  File file(path, File::Mode::kWrite);
  write(file, 0, std::as_bytes(std::span(text)));
}

void Disk::write_whole(const std::filesystem::path& path, std::string_view text) {
  write_new(path, text);
  File file(path, File::Mode::kWrite);
  sync(file);
}

Disk& system_disk() {
  static Disk disk;  // can be shared because it has no state
  return disk;
}

}  // namespace lockstep::checkpoint
