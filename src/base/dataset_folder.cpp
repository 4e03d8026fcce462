// Recognizes the metadata files of Hugging Face dataset folders.
#include "base/dataset_folder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

namespace lockstep {

bool describes_dataset(const std::filesystem::path& path) {
  static constexpr std::array<std::string_view, 4> kNames{
      "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "README.md"};
  const std::string name = path.filename().string();
  std::error_code ignored;
  return std::ranges::find(kNames, name) != kNames.end() ||
         (name == "state.json" &&
          std::filesystem::exists(path.parent_path() / "dataset_info.json", ignored));
}

}  // namespace lockstep
