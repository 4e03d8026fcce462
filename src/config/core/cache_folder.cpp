#include "config/core/cache_folder.h"

#include <cstdlib>

namespace lockstep::config {

std::filesystem::path cache_folder(const std::string& cache_dir) {
  if (!cache_dir.empty()) {
    return cache_dir;
  }
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "lockstep" / "data";
  }
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      home != nullptr && *home != '\0' ? std::filesystem::path(home) / ".cache" : "/tmp";
  return base / "lockstep" / "data";
}

std::filesystem::path machine_file() {
  return cache_folder("").parent_path() / "machine.yaml";
}

}  // namespace lockstep::config
