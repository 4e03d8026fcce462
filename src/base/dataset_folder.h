// Metadata files of Hugging Face dataset folders.
#pragma once

#include <filesystem>

namespace lockstep {

/// Returns true for metadata files that `save_to_disk` and the Hub write next to the data:
/// dataset_info.json, dataset_infos.json, dataset_dict.json, README.md, and state.json if
/// dataset_info.json is in the same folder.
bool describes_dataset(const std::filesystem::path& path);

}  // namespace lockstep
