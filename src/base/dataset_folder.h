// Files of a Hugging Face dataset folder that hold no rows.
#pragma once

#include <filesystem>

namespace lockstep {

/// True for the files that `save_to_disk` and the Hub write beside the data to describe it:
/// dataset_info.json, dataset_infos.json, dataset_dict.json, README.md, and state.json if
/// dataset_info.json is in the same folder.
bool describes_dataset(const std::filesystem::path& path);

}  // namespace lockstep
