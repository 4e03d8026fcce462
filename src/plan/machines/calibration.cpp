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

Efficiency fitted_efficiency(const std::string& device) {
  const auto found = calibration().devices.find(calibrated_as(device));
  return found == calibration().devices.end() ? Efficiency{} : found->second;
}

}  // namespace lockstep::plan
