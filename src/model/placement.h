// Which part of a model lives on which device, for a model that is larger than one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// A device and the bytes that may be filled on it.
struct DeviceSpace {
  std::string name;  // "cuda:0", "cpu"
  int64_t free_bytes = 0;
};

/// One number a unit (the embedding, each block, the head, in the order of use): an index into the
/// devices.
struct Placement {
  std::vector<int64_t> device_of_unit;
  bool operator==(const Placement&) const = default;
};

/// The bytes of each unit: weights of `bytes_per_element`, and the key-value cache of a sequence of
/// `cache_positions`. A tied head has none of its own.
std::vector<int64_t> unit_bytes(
    const ModelConfig& config, int64_t bytes_per_element, int64_t cache_positions);

/// Fills the devices in the order given, each unit on the first device (from the last one used on)
/// that has room for it beside the largest unit's working memory, `reserve_bytes`. A tied head
/// stands where the embedding does. Throws (kOutOfMemory) where they do not all fit, with what is
/// needed and what there is.
Placement place_units(
    const ModelConfig& config,
    const std::vector<int64_t>& unit_bytes,
    const std::vector<DeviceSpace>& devices,
    int64_t reserve_bytes = 0);

}  // namespace lockstep::model
