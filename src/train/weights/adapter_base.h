// Identifies the base weights that an adapter was trained with.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "model/source.h"

namespace lockstep::train {

/// File in the adapter's folder: {"weights": HASH}. PEFT does not write it.
inline constexpr std::string_view kBaseName = "base.json";

/// Returns a hash of samples of the folder's weight files; reads only a small part of them. Empty
/// if the folder has no weights, or if they are packed, because packed weights differ from the
/// original ones.
std::string base_hash(const model::ModelSource& base);
std::string base_json(const std::string& hash);
/// Throws Error (data) if the adapter was trained with base weights other than those of `base`.
void check_base(const std::filesystem::path& adapter, const model::ModelSource& base);

}  // namespace lockstep::train
