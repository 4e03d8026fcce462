#include "plan/machines/calibration.h"

#include <map>
#include <string>

namespace lockstep::plan {

std::string calibrated_as(const std::string& device) {
  static const std::map<std::string, std::string> table = {
      {"a100-40gb", "a100-80gb"},  // the same chip
      {"h200", "h100-80gb"},
      {"h100-96gb-500w", "h100-80gb"},  // the same chip with less power
      {"b200", "gb200"},
      {"gb300", "gb200"},
      {"v100-16gb", "v100-32gb"},
      {"rtx-5090", "rtx-4090"},  // the next of its line: no runs to fit it to
      {"titan-rtx", "v100-32gb"},
      {"tpu-v3-core", "a100-80gb"},
  };
  const auto found = table.find(device);
  return found == table.end() ? device : found->second;
}

Efficiency usual_efficiency(const Device& device) {
  Efficiency usual;
  if (device.name.starts_with("rtx")) {
    // Consumer cards reach nearly all of a peak that is set by 32-bit accumulation, servers' cards
    // are held by their power.
    usual = {.matrix16 = 0.9, .matrix8 = 0.75, .attention = 0.55, .memory = 0.85};
  } else if (device.flops8 >= 4e15) {
    // Twice Hopper's products for as many exponentials: an attention kernel, which needs both,
    // reaches three quarters of Hopper's share of the peak.
    usual.attention = 0.30;
  }
  return usual;
}

Efficiency fitted_efficiency(const Device& device) {
  const auto found = calibration().devices.find(calibrated_as(device.name));
  return found == calibration().devices.end() ? usual_efficiency(device) : found->second;
}

}  // namespace lockstep::plan
