// Caches results of reading large files.
#include "data/file_marks.h"

#include <ctime>
#include <utility>

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"

namespace lockstep::data {
namespace fs = std::filesystem;

FileMarks::FileMarks(fs::path folder, uint64_t least, int64_t settled_seconds)
    : folder_(std::move(folder)),
      least_(least),
      settled_seconds_(settled_seconds) {}

fs::path FileMarks::mark_of(const fs::path& path, std::string_view purpose) const {
  std::error_code code;
  const fs::path whole = fs::weakly_canonical(path, code);
  Hasher hasher;
  hasher.update_field(purpose);
  hasher.update_field((code ? path : whole).string());
  return folder_ / (hasher.hex() + ".mark");
}

std::optional<std::string> FileMarks::state_of(const fs::path& path) const {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || static_cast<uint64_t>(status.st_size) < least_) {
    return std::nullopt;
  }
  const std::time_t now = std::time(nullptr);
  if (status.st_mtim.tv_sec + settled_seconds_ > now ||
      status.st_ctim.tv_sec + settled_seconds_ > now) {
    return std::nullopt;
  }
  return fmt::format(
      "{} {} {} {}.{:09} {}.{:09}",
      status.st_dev,
      status.st_ino,
      status.st_size,
      status.st_mtim.tv_sec,
      status.st_mtim.tv_nsec,
      status.st_ctim.tv_sec,
      status.st_ctim.tv_nsec);
}

std::optional<std::string> FileMarks::find(const fs::path& path, std::string_view purpose) const {
  const std::optional<std::string> state = state_of(path);
  const fs::path mark = mark_of(path, purpose);
  std::error_code code;
  if (!state || !fs::is_regular_file(mark, code)) {
    return std::nullopt;
  }
  try {
    const std::string text = read_file(mark);
    const size_t line = text.find('\n');
    if (line == std::string::npos || line + 1 == text.size() || text.substr(0, line) != *state ||
        text.back() != '\n') {
      return std::nullopt;
    }
    return text.substr(line + 1, text.size() - line - 2);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void FileMarks::remember(
    const fs::path& path,
    std::string_view purpose,
    const std::optional<std::string>& state,
    const std::string& found) const {
  if (!state || state_of(path) != state) {  // the file changed while it was read
    return;
  }
  try {
    write_file_atomically(mark_of(path, purpose), *state + "\n" + found + "\n", ErrorKind::kData);
  } catch (const Error&) {
    // Ignore the error: the cache is optional.
  }
}

}  // namespace lockstep::data
