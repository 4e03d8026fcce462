// Locates the user's cache folder.
#include "base/user_cache.h"

#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {
namespace {

// Returns a folder in /tmp that only this user can create and write to, because cache contents are
// trusted.
std::filesystem::path own_temporary_folder() {
  const std::string path = fmt::format("/tmp/lockstep-{}", ::geteuid());
  struct stat info{};
  ::mkdir(path.c_str(), 0700);
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 0022) != 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} must be a folder that only this user can write to", path),
        "set HOME, XDG_CACHE_HOME or data.cache_dir");
  }
  return path;
}

}  // namespace

std::filesystem::path user_cache_folder() {
  const auto below = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::filesystem::path(value != nullptr ? value : "");
  };
  if (const auto cache = below("XDG_CACHE_HOME"); !cache.empty()) {
    return cache / "lockstep";
  }
  const auto home = below("HOME");
  return home.empty() ? own_temporary_folder() : home / ".cache" / "lockstep";
}

}  // namespace lockstep
