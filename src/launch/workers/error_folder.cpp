// Creation, locking and removal of the folder of error files.
#include "launch/workers/error_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/temporary_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "lockstep-errors-";

int open_folder(const fs::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void remove_if_abandoned(const fs::path& path) {
  const int folder = open_folder(path);
  struct stat status{};
  if (folder >= 0 && ::fstat(folder, &status) == 0 && status.st_uid == ::geteuid() &&
      ::flock(folder, LOCK_EX | LOCK_NB) == 0) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  if (folder >= 0) {
    ::close(folder);
  }
}

void remove_abandoned(const fs::path& parent) {
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; at != end; at.increment(ignored)) {
    if (at->path().filename().string().starts_with(kPrefix)) {
      remove_if_abandoned(at->path());
    }
  }
}

fs::path make_folder(const fs::path& parent) {
  std::string pattern = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot create a folder in {}: {}", pattern, std::strerror(errno)),
        "set TMPDIR to a writable folder");
  }
  return pattern;
}

}  // namespace

ErrorFolder::ErrorFolder() {
  const fs::path parent = temporary_folder();
  remove_abandoned(parent);
  std::error_code ignored;
  do {  // until the lock is taken before another supervisor takes the new folder for abandoned
    if (lock_ >= 0) {
      ::close(lock_);
    }
    path_ = make_folder(parent);
    lock_ = open_folder(path_);
    ::flock(lock_, LOCK_EX);
  } while (!fs::exists(path_, ignored));
}

ErrorFolder::~ErrorFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
}

fs::path ErrorFolder::file(int local_rank) const {
  const fs::path folder = path_ / std::to_string(local_rank);
  fs::create_directories(folder);
  return folder / "error.json";
}

}  // namespace lockstep::launch
