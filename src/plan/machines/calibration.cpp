// Looks up the fitted parameters of a device.
#include "plan/machines/calibration.h"

#include <map>
#include <string>

namespace lockstep::plan {

std::string calibrated_as(const std::string& device) {
  static const std::map<std::string, std::string> table = {
      {"a100-40gb", "a100-80gb"},  // same chip
      {"h200", "h100-80gb"},
      {"h100-96gb-500w", "h100-80gb"},  // same chip with less power
      {"b200", "gb200"},
      {"gb300", "gb200"},
      {"v100-16gb", "v100-32gb"},
      {"rtx-5090", "rtx-4090"},  // successor without published runs
      {"titan-rtx", "v100-32gb"},
      {"tpu-v3-core", "a100-80gb"},
  };
  const auto found = table.find(device);
  return found == table.end() ? device : found->second;
}

Efficiency usual_efficiency(const Device& device) {
  Efficiency usual;
  if (device.name.starts_with("rtx")) {
    // Consumer cards nearly reach their peak, which is limited by 32-bit accumulation. Server cards
    // are limited by power.
    usual = {.matrix16 = 0.9, .matrix8 = 0.75, .attention = 0.55, .memory = 0.85};
  } else if (device.flops8 >= 4e15) {
    // Compared with Hopper, twice the matrix rate but the same exponential rate. Attention needs
    // both and reaches three quarters of Hopper's fraction of the peak.
    usual.attention = 0.30;
  }
  return usual;
}

Efficiency fitted_efficiency(const Device& device) {
  const auto found = calibration().devices.find(calibrated_as(device.name));
  return found == calibration().devices.end() ? usual_efficiency(device) : found->second;
}

}  // namespace lockstep::plan
