// Lists and counts the parameters that adapters train.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
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

void check_start(const LoraConfig& config, const LayerSpec& layer, int64_t rank, bool is_new) {
  const std::string& init = config.init_lora_weights;
  const bool takes = init == "pissa" || init == "olora";
  const std::vector<int64_t>& shape = layer.weight().shape;
  const char* why =
      takes && layer.kind != LayerKind::kLinear      ? "only the weight of a linear is supported"
      : takes && rank > std::min(shape[0], shape[1]) ? "the weight has fewer singular values"
      : init == "olora" && layer.has_inputs_first()
          ? "PEFT does not support it for [in, out] weights"
      : init == "orthogonal" && is_new && rank % 2 != 0 ? "the rank must be even"
                                                        : nullptr;
  if (why != nullptr) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "lora.init_lora_weights: no {} of rank {} for {}: {}", init, rank, layer.prefix, why),
        "set it to true, or use another rank or other target_modules");
  }
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
