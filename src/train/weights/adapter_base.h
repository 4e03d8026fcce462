// Which weights an adapter was trained beside.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "model/source.h"

namespace lockstep::train {

/// The file beside an adapter that says it: {"weights": HASH}. PEFT's folders have none.
inline constexpr std::string_view kBaseName = "base.json";

/// A hash of the folder's files of weights by samples of each: few reads, whatever their size.
/// Empty: there are none, or they are packed, and stand for others.
std::string base_hash(const model::ModelSource& base);
std::string base_json(const std::string& hash);
/// Error (data) where the adapter's folder names other weights than `base` has.
void check_base(const std::filesystem::path& adapter, const model::ModelSource& base);

}  // namespace lockstep::train
