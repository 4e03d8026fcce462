// A model for generation, on one device or spread over several.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/weights/model_loading.h"

namespace lockstep::train {

/// Loads the model where it has room: "auto" fills the first GPU, then the others, then host memory
/// (by whole units: embedding, blocks, head), counting a key-value cache of `positions`; "cpu" is
/// host memory. Error (out of memory) where it fits nowhere.
std::unique_ptr<nn::LanguageModel> load_over_devices(
    const model::ModelSource& source,
    ModelRequest request,
    const std::string& device_map,
    int64_t positions);

}  // namespace lockstep::train
