#include "config/core/cache_folder.h"

#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::config {
namespace {

// A folder of /tmp that nobody but this user can have made or write to: what is read back from a
// cache is trusted.
std::filesystem::path own_temporary_folder() {
  const std::string path = fmt::format("/tmp/lockstep-{}", ::geteuid());
  struct stat info{};
  ::mkdir(path.c_str(), 0700);
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 0022) != 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is to be a folder that this user alone may write to", path),
        "set HOME, XDG_CACHE_HOME or data.cache_dir");
  }
  return path;
}

}  // namespace

std::filesystem::path cache_folder(const std::string& cache_dir) {
  if (!cache_dir.empty()) {
    return cache_dir;
  }
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "lockstep" / "data";
  }
  const char* home = std::getenv("HOME");
  const bool has_home = home != nullptr && *home != '\0';
  return has_home ? std::filesystem::path(home) / ".cache" / "lockstep" / "data"
                  : own_temporary_folder() / "data";
}

std::filesystem::path machine_file() {
  return cache_folder("").parent_path() / "machine.yaml";
}

}  // namespace lockstep::config
