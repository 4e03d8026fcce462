#include "config/core/cache_folder.h"

#include "base/user_cache.h"

namespace lockstep::config {

std::filesystem::path cache_folder(const std::string& cache_dir) {
  return cache_dir.empty() ? user_cache_folder() / "data" : std::filesystem::path(cache_dir);
}

}  // namespace lockstep::config
