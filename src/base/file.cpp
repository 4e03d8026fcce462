// Implements memory-mapped files, file access by offset, and atomic writes.
#include "base/file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/format.h"
#include "base/mapped_ranges.h"
#include "base/replace_file.h"

namespace lockstep {

Error system_error(ErrorKind kind, std::string_view action, const std::filesystem::path& path) {
  const int code = errno;
  std::string remedy;
  if (code == ENOSPC || code == EDQUOT) {
    remedy = fmt::format(
        "free some space on the disk of {}, or write elsewhere", path.parent_path().string());
  } else if (code == EACCES || code == EROFS || code == EPERM) {
    remedy = "write to another folder, or change the permissions";
  } else if (code == ENOTDIR) {
    remedy = "part of the path is a file: use another path";
  }
  return Error(
      kind, fmt::format("cannot {} {}: {}", action, path.string(), std::strerror(code)), remedy);
}

namespace {

// O_NONBLOCK: opening a pipe for reading would wait for a writer. It has no effect on files.
constexpr int kRead = O_RDONLY | O_NONBLOCK | O_CLOEXEC;

/// Throws an Error if an open file cannot be read by offset: a folder, a pipe or a block device.
/// Character devices such as /dev/null are empty files.
void check_readable(int descriptor, const std::filesystem::path& path, ErrorKind kind) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) {
    throw system_error(kind, "look at", path);
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(kind, fmt::format("{} is a folder, not a file", path.string()));
  }
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
    throw Error(kind, fmt::format("{} is not a regular file", path.string()));
  }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, ErrorKind kind) {
  const int descriptor = ::open(path.c_str(), kRead);
  if (descriptor < 0) {
    throw system_error(kind, "open", path);
  }
  struct stat status{};
  void* mapped = MAP_FAILED;
  const bool known = ::fstat(descriptor, &status) == 0;
  if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
    mapped =
        ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int code = errno;
  ::close(descriptor);
  errno = code;
  if (known && !S_ISREG(status.st_mode)) {
    throw Error(kind, fmt::format("{} is not a file", path.string()));
  }
  if (known && status.st_size == 0) {
    return;  // an empty file cannot be mapped
  }
  if (mapped == MAP_FAILED) {
    throw system_error(kind, "map", path);
  }
  data_ = static_cast<const std::byte*>(mapped);
  size_ = static_cast<size_t>(status.st_size);
  note_mapping(data_, size_, path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    forget_mapping(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

namespace {

uintptr_t page_bytes() {
  return static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void expect_pages(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t before = begin % page_bytes();
    ::madvise(  // only a hint
        reinterpret_cast<void*>(begin - before),
        before + bytes.size(),
        MADV_WILLNEED);
  }
}

void forget_pages(std::span<const std::byte> bytes) {
  const uintptr_t page = page_bytes();
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // only a hint
  }
}

File::File(const std::filesystem::path& path, Mode mode, ErrorKind kind)
    : path_(path),
      kind_(kind) {
  const int flags = mode == Mode::kRead        ? kRead
                    : mode == Mode::kCreate    ? O_RDWR | O_CREAT | O_TRUNC
                    : mode == Mode::kCreateNew ? O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW
                                               : O_RDWR;
  descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    if (mode == Mode::kRead && errno == ENXIO) {  // a socket
      throw Error(kind, fmt::format("{} is not a regular file", path.string()));
    }
    fail(mode == Mode::kCreate || mode == Mode::kCreateNew ? "create" : "open");
  }
  if (mode == Mode::kRead) {
    try {
      check_readable(descriptor_, path, kind);
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
  }
}

std::optional<File> File::open_direct(const std::filesystem::path& path, ErrorKind kind) {
  struct statfs system{};
  if (::statfs(path.c_str(), &system) != 0 ||
      (system.f_type != EXT4_SUPER_MAGIC && system.f_type != XFS_SUPER_MAGIC)) {
    return std::nullopt;
  }
  const int descriptor = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  if (descriptor < 0) {
    return std::nullopt;  // the fallback, a buffered open, reports the reason
  }
  return File(descriptor, path, kind);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      kind_(other.kind_) {}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void File::fail(const char* action) const {
  throw system_error(kind_, action, path_);
}

void File::resize(uint64_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    fail("set the size of");
  }
}

void File::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail("write");
    }
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void File::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail("read");
    }
    if (count == 0) {
      throw Error(
          kind_,
          fmt::format("{} ends at byte {}, {} bytes early", path_.string(), offset, bytes.size()));
    }
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void File::sync() {
  if (::fsync(descriptor_) != 0) {
    fail("sync");
  }
}

uint64_t File::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    fail("look at");
  }
  return static_cast<uint64_t>(status.st_size);
}

std::string read_file(const std::filesystem::path& path, ErrorKind kind, uint64_t longest) {
  const File file(path, File::Mode::kRead, kind);
  const uint64_t size = file.size();
  if (size > longest) {
    throw Error(
        kind, fmt::format("{} has {} bytes, but the maximum is {}", path.string(), size, longest));
  }
  std::string text(size, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file_atomically(
    const std::filesystem::path& path, std::string_view text, ErrorKind kind) {
  replace_file(path, [&](File& file) { file.write_at(0, std::as_bytes(std::span(text))); }, kind);
}

void replace_file(
    const std::filesystem::path& path,
    const std::function<void(File& file)>& write,
    ErrorKind kind) {
  // The name is unpredictable so that no other process can create a link with it and no other host
  // uses it.
  std::filesystem::path temporary = path;
  uint64_t drawn = 0;
  [[maybe_unused]] const auto size = ::getrandom(&drawn, sizeof drawn, 0);
  temporary += fmt::format(".tmp-{}-{:016x}", ::getpid(), drawn);
  try {
    File file(temporary, File::Mode::kCreateNew, kind);
    write(file);
    file.sync();
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      throw system_error(kind, "rename a file to", path);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || ::fsync(descriptor) != 0) {
    const Error error = system_error(ErrorKind::kCheckpoint, "sync", folder);
    if (descriptor >= 0) {
      ::close(descriptor);
    }
    throw error;
  }
  ::close(descriptor);
}

void create_folders(const std::filesystem::path& folder, ErrorKind kind) {
  if (folder.string().find("://") != std::string::npos) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is not a local folder", folder.string()),
        "write to a local folder and copy it from there; only output_dir of `lockstep train` may "
        "be in an object store");
  }
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) {
    errno = code.value();
    throw system_error(kind, "create the folder", folder);
  }
}

bool is_locked(const std::filesystem::path& path) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) {
    return false;
  }
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  const bool held = ::fcntl(opened, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
  ::close(opened);
  return held;
}

}  // namespace lockstep
