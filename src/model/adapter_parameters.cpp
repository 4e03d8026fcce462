// What adapters train: its names, and how much it is.
#include <map>
#include <optional>
#include <string>

#include "model/adapter_names.h"
#include "model/adapters.h"

namespace lockstep::model {

std::string peft_name(const std::string& name) {
  return "base_model.model." + name;
}

std::optional<std::string> layer_of_magnitudes(const std::string& parameter) {
  return parameter.ends_with(kMagnitudesEnd)
             ? std::optional(parameter.substr(0, parameter.size() - kMagnitudesEnd.size()))
             : std::nullopt;
}

std::optional<std::string> layer_of_rows(const std::string& parameter) {
  return parameter.ends_with(kRowsEnd)
             ? std::optional(parameter.substr(0, parameter.size() - kRowsEnd.size()))
             : std::nullopt;
}

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
