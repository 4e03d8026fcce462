// Moves the units of a model to several devices.
#include "nn/devices.h"

#include <map>

#include <ATen/ATen.h>

#include "base/error.h"

namespace lockstep::nn {

void place_on_devices(
    LanguageModel& model,
    const model::Placement& placement,
    const std::vector<at::Device>& devices) {
  const auto units = model.units();
  if (units.size() != placement.device_of_unit.size() || !model.part().embedding ||
      !model.part().head) {
    throw Error(ErrorKind::kInternal, "the placement does not match the model");
  }
  std::vector<at::Device> device_of_unit;
  std::map<std::string, at::Device> device_of;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    device_of_unit.push_back(devices.at(static_cast<size_t>(placement.device_of_unit[unit])));
    for (const std::string& name : units[unit]) {
      device_of.emplace(name, device_of_unit.back());
    }
  }
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    const bool requires_grad = parameter.requires_grad();
    parameter = parameter.detach().to(device_of.at(name)).set_requires_grad(requires_grad);
  });
  model.around_unit = [device_of_unit, inner = model.around_unit](
                          int64_t unit, Tensors inputs, const LanguageModel::UnitBody& body) {
    const at::Device device = device_of_unit.at(static_cast<size_t>(unit));
    for (Tensor& input : inputs) {
      input = input.defined() ? input.to(device) : input;
    }
    return inner(unit, inputs, body);
  };
}

}  // namespace lockstep::nn
