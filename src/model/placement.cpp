// Assigns a model's units to devices.
#include "model/placement.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"

namespace lockstep::model {
namespace {

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

[[noreturn]] void throw_too_large(
    const std::vector<int64_t>& units, const std::vector<DeviceSpace>& devices, int64_t reserve) {
  const int64_t needed = std::accumulate(units.begin(), units.end(), int64_t{0});
  std::vector<std::string> spaces;
  for (const DeviceSpace& device : devices) {
    spaces.push_back(fmt::format("{} {:.2f} GiB", device.name, gib(device.free_bytes)));
  }
  throw Error(
      ErrorKind::kOutOfMemory,
      fmt::format(
          "the model requires {:.2f} GiB, and {:.2f} GiB of working memory on each device; "
          "available: {}",
          gib(needed),
          gib(reserve),
          fmt::join(spaces, ", ")),
      "use bfloat16 weights, more devices, or a smaller model");
}

}  // namespace

std::vector<int64_t> unit_bytes(
    const ModelConfig& config, int64_t bytes_per_element, int64_t cache_positions) {
  std::vector<int64_t> elements(static_cast<size_t>(config.layers + 2), 0);
  for (const ParameterSpec& parameter : parameters_of(config)) {
    elements.at(static_cast<size_t>(parameter.unit)) += parameter.elements();
  }
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < elements.size(); ++i) {
    bytes.push_back(elements[i] * bytes_per_element);
    if (i >= 1 && i <= static_cast<size_t>(config.layers)) {
      const int64_t window = config.sliding_windows[i - 1];
      const int64_t kept = window > 0 ? std::min(window, cache_positions) : cache_positions;
      bytes.back() += 2 * config.kv_heads * config.head_dim * kept * bytes_per_element;
    }
  }
  return bytes;
}

Placement place_units(
    const ModelConfig& config,
    const std::vector<int64_t>& unit_bytes,
    const std::vector<DeviceSpace>& devices,
    int64_t reserve_bytes) {
  std::vector<int64_t> room;
  for (const DeviceSpace& device : devices) {
    room.push_back(device.free_bytes - reserve_bytes);
  }
  Placement placement;
  size_t device = 0;
  for (size_t unit = 0; unit < unit_bytes.size(); ++unit) {
    const bool is_tied_head = config.ties_head() && unit + 1 == unit_bytes.size();
    if (is_tied_head) {
      const auto first = static_cast<size_t>(placement.device_of_unit.front());
      if (unit_bytes[unit] > room[first]) {
        throw_too_large(unit_bytes, devices, reserve_bytes);
      }
      placement.device_of_unit.push_back(static_cast<int64_t>(first));
      continue;
    }
    while (device < devices.size() && unit_bytes[unit] > room[device]) {
      ++device;
    }
    if (device == devices.size()) {
      throw_too_large(unit_bytes, devices, reserve_bytes);
    }
    room[device] -= unit_bytes[unit];
    placement.device_of_unit.push_back(static_cast<int64_t>(device));
  }
  return placement;
}

}  // namespace lockstep::model
