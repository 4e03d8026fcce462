// Loads a model for generation on one device or across several.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/weights/model_loading.h"

namespace lockstep::train {

/// Loads the model onto devices with enough memory. "auto" fills the first GPU, then the other
/// GPUs, then host memory. It places whole units (embedding, blocks, head) and reserves memory for
/// a key-value cache of `positions` positions. "cpu" uses host memory. Throws Error (out of memory)
/// if the model does not fit.
std::unique_ptr<nn::LanguageModel> load_over_devices(
    const model::ModelSource& source,
    ModelRequest request,
    const std::string& device_map,
    int64_t positions);

}  // namespace lockstep::train
