// Adapter parameter name suffixes and validation of adapter initialization. Internal to model.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/description.h"
#include "model/lora_config.h"

namespace lockstep::model {

inline constexpr std::string_view kMagnitudesEnd = ".lora_magnitude_vector";
inline constexpr std::string_view kRowsEnd = ".token_adapter.trainable_tokens_delta";

/// Throws Error (kConfig) if the requested initialization is impossible for factors of this rank in
/// this layer (train/weights/initial_factors.h).
void check_start(const LoraConfig& config, const LayerSpec& layer, int64_t rank, bool is_new);

}  // namespace lockstep::model
