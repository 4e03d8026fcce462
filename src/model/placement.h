// Placement of a model's units on devices, for a model that exceeds the memory of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// A device and the number of bytes that may be used on it.
struct DeviceSpace {
  std::string name;  // "cuda:0", "cpu"
  int64_t free_bytes = 0;
};

/// Index of the device of each unit (embedding, blocks, head, in the order of use).
struct Placement {
  std::vector<int64_t> device_of_unit;
  bool operator==(const Placement&) const = default;
};

/// Returns the size of each unit in bytes: weights of `bytes_per_element` and the key-value cache
/// for `cache_positions` positions. A tied head has no weights of its own.
std::vector<int64_t> unit_bytes(
    const ModelConfig& config, int64_t bytes_per_element, int64_t cache_positions);

/// Fills the devices in the given order: each unit goes to the first device, starting from the last
/// used one, with room for it in addition to the largest unit's working memory, `reserve_bytes`. A
/// tied head is on the embedding's device. Throws Error (kOutOfMemory), with required and available
/// memory, if they do not fit.
Placement place_units(
    const ModelConfig& config,
    const std::vector<int64_t>& unit_bytes,
    const std::vector<DeviceSpace>& devices,
    int64_t reserve_bytes = 0);

}  // namespace lockstep::model
