// What adapters train, counted.
#include <map>
#include <string>

#include "model/adapters.h"

namespace lockstep::model {

int64_t trained_count(const Adapters& adapters, const ModelConfig& model) {
  std::map<std::string, ParameterSpec> parameters = parameters_by_name(model);
  parameters.merge(adapter_parameters(adapters));
  int64_t count = 0;
  for (const auto& [name, names] : adapters.file_names) {
    count += parameters.at(name).elements();
  }
  return count;
}

std::map<std::string, ParameterSpec> adapter_parameters(const Adapters& adapters) {
  std::map<std::string, ParameterSpec> result;
  for (const auto& [prefix, adapter] : adapters.of_layers) {
    for (const ParameterSpec& parameter : adapter.parameters) {
      result.emplace(parameter.name, parameter);
    }
  }
  return result;
}

}  // namespace lockstep::model
