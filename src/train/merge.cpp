#include "train/merge.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "train/checkpointing.h"
#include "train/model_loading.h"

namespace lockstep::train {
namespace {

/// A parameter's values, whole.
at::Tensor values_of(const parallel::ModelSpec& spec, const model::ParameterSpec& parameter) {
  at::Tensor values = at::empty(parameter.shape, at::kFloat);
  spec.fill(parameter.name, {parameter.shape, {}}, 0, values);
  return values;
}

/// What an adapter adds to its layer's weight, in the weight's layout.
at::Tensor added_by(
    const parallel::ModelSpec& spec, const model::LayerSpec& layer, const model::Adapter& adapter) {
  const at::Tensor a = values_of(spec, adapter.parameters[0]);
  const at::Tensor b = values_of(spec, adapter.parameters[1]);
  const at::Tensor added = b.mm(a).mul_(adapter.scale);  // [out, in]
  return layer.in_first ? added.t() : added;
}

}  // namespace

MergedModel merge_adapter(
    const model::ModelSource& base,
    const AdapterRequest& adapter,
    std::optional<at::ScalarType> type) {
  const at::NoGradGuard no_gradient;
  if (!base.has_weights) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no weights that an adapter could be merged into", base.name),
        "give the model that it was trained beside");
  }
  ModelRequest request;
  request.adapter = adapter;
  const parallel::ModelSpec spec = model_spec(base, request);
  MergedModel result{spec.config, type.value_or(stored_type(base)), {}};
  for (const model::LayerSpec& layer : model::describe(spec.config)) {
    const auto found = spec.adapters->of_layers.find(layer.prefix);
    for (const model::ParameterSpec& parameter : layer.parameters) {
      at::Tensor values = values_of(spec, parameter);
      if (found != spec.adapters->of_layers.end() && parameter.name == layer.weight().name) {
        values.add_(added_by(spec, layer, found->second));
      }
      result.weights.push_back(
          {"model",
           parameter.name,
           result.type,
           parameter.shape,
           0,
           values.to(result.type).flatten(),
           {}});
    }
  }
  return result;
}

void save_merged(
    const std::filesystem::path& folder,
    const MergedModel& model,
    const text::Tokenizer* tokenizer) {
  comm::Communicator alone = comm::Communicator::alone();
  checkpoint::save_model(
      folder, model.weights, model_folder_files(model.config, model.type, tokenizer), alone);
}

}  // namespace lockstep::train
