// Locates files in the local Hugging Face cache.
#include "base/hugging_face_cache.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path cache_folder(
    std::initializer_list<const char*> variables,
    const char* name,
    const EnvironmentLookup& environment) {
  const auto value = [&](const char* variable) {
    return environment(variable).value_or("");  // an empty variable is treated as unset
  };
  for (const char* const variable : variables) {
    if (const std::string folder = value(variable); !folder.empty()) {
      return expand_home(folder, environment);
    }
  }
  if (const std::string folder = value("HF_HOME"); !folder.empty()) {
    return expand_home(folder, environment) / name;
  }
  const std::string cache = value("XDG_CACHE_HOME");
  return expand_home(cache.empty() ? "~/.cache" : cache, environment) / "huggingface" / name;
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

fs::path hub_cache_folder(const EnvironmentLookup& environment) {
  return cache_folder({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}, "hub", environment);
}

fs::path datasets_cache_folder(const EnvironmentLookup& environment) {
  return cache_folder({"HF_DATASETS_CACHE"}, "datasets", environment);
}

fs::path expand_home(const std::string& path, const EnvironmentLookup& environment) {
  if (path == "~" || path.starts_with("~/")) {
    return fs::path(environment("HOME").value_or("")) /
           path.substr(std::min<size_t>(path.size(), 2));
  }
  return path;
}

std::vector<fs::path> files_of_rows(const fs::path& name) {
  const std::string begin = name.filename().string() + "-";
  for (const char* ending : {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow"}) {
    std::error_code ignored;
    const fs::path whole = name.string() + ending;
    if (fs::is_regular_file(whole, ignored)) {
      return {whole};
    }
    std::vector<fs::path> parts;
    for (const fs::directory_entry& entry : fs::directory_iterator(name.parent_path(), ignored)) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with(begin) && file.ends_with(ending) &&
          file.find("-of-", begin.size()) != std::string::npos) {
        parts.push_back(entry.path());
      }
    }
    if (!parts.empty()) {
      std::ranges::sort(parts);
      return parts;
    }
  }
  return {};
}

}  // namespace lockstep
