#include "train/weights/stacks.h"

namespace lockstep::train {

std::optional<checkpoint::StackedTensor> written_stack(const model::ParameterSpec& parameter) {
  const auto& place = parameter.stacked;
  return place && place->is_written
             ? std::optional(checkpoint::StackedTensor{place->name, place->shape, place->offset})
             : std::nullopt;
}

std::map<std::string, checkpoint::StackedTensor> written_stacks(const model::ModelConfig& config) {
  std::map<std::string, checkpoint::StackedTensor> stacks;
  for (const model::ParameterSpec& parameter : model::parameters_of(config)) {
    if (auto stack = written_stack(parameter)) {
      stacks.emplace(parameter.name, std::move(*stack));
    }
  }
  return stacks;
}

}  // namespace lockstep::train
