// Placement of a model's units on several devices, for models that exceed the memory of one device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Device and the number of bytes available on it.
struct DeviceSpace {
  std::string name;  // "cuda:0", "cpu"
  int64_t free_bytes = 0;
};

/// Device index of each unit (embedding, blocks, head) in order of use.
struct Placement {
  std::vector<int64_t> device_of_unit;
  bool operator==(const Placement&) const = default;
};

/// Returns the bytes of each unit: weights with `bytes_per_element` and the key-value cache for
/// `cache_positions` positions. A tied head has no weights of its own.
std::vector<int64_t> unit_bytes(
    const ModelConfig& config, int64_t bytes_per_element, int64_t cache_positions);

/// Fills the devices in the given order. Each unit is placed on the first device, starting from the
/// last used one, that has space for it plus `reserve_bytes` of working memory for the largest
/// unit. A tied head is placed on the embedding's device. Throws Error (kOutOfMemory), with
/// required and available memory, if the units do not fit.
Placement place_units(
    const ModelConfig& config,
    const std::vector<int64_t>& unit_bytes,
    const std::vector<DeviceSpace>& devices,
    int64_t reserve_bytes = 0);

}  // namespace lockstep::model
