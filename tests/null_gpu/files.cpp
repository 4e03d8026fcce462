// Device files of GPUs, visible to a process that lists /dev.
#include <cstdarg>
#include <cstring>
#include <fstream>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "null_gpu/machine.h"
#include "null_gpu/report.h"

namespace null_gpu {
namespace {

/// Returns the folder that replaces /dev.
const char* shown(const char* path) {
  if (std::strcmp(path, "/dev") != 0) {
    return path;
  }
  static const std::string folder = [] {
    const std::string name = null_gpu::folder() + "/dev";
    ::mkdir(name.c_str(), 0777);
    for (int i = 0; i < number_setting("DEVICES", 8); ++i) {
      std::ofstream(name + "/nvidia" + std::to_string(i));
    }
    return name;
  }();
  return folder.c_str();
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace null_gpu

extern "C" {

DIR* opendir(const char* path) {
  static const auto real = null_gpu::next<DIR* (*)(const char*)>("opendir");
  return real(null_gpu::shown(path));
}

int openat(int folder, const char* path, int flags, ...) {
  static const auto real = null_gpu::next<int (*)(int, const char*, int, mode_t)>("openat");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return real(folder, null_gpu::shown(path), flags, mode);
}

}  // extern "C"
