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

/// Makes a layer's weight, in its layout, what it is with the adapter.
void merge(
    const parallel::ModelSpec& spec,
    const model::LayerSpec& layer,
    const model::Adapter& adapter,
    const at::Tensor& weight) {
  const at::Tensor rows = layer.in_first ? weight.t() : weight;  // [out, in]
  const at::Tensor a = values_of(spec, adapter.parameters[0]);
  const at::Tensor b = values_of(spec, adapter.parameters[1]);
  rows.add_(b.mm(a), adapter.scale);
  if (adapter.decomposes) {
    const at::Tensor sizes = values_of(spec, adapter.parameters[2]) / rows.square().sum(1).sqrt();
    rows.mul_(sizes.unsqueeze(1));
  }
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
  request.task.head = config_with(base.config, adapter).head;
  const parallel::ModelSpec spec = model_spec(base, request);
  MergedModel result{spec.config, type.value_or(stored_type(base)), {}};
  for (const model::LayerSpec& layer : model::describe(spec.config)) {
    const auto found = spec.adapters->of_layers.find(layer.prefix);
    for (const model::ParameterSpec& parameter : layer.parameters) {
      at::Tensor values = values_of(spec, parameter);
      if (found != spec.adapters->of_layers.end() && parameter.name == layer.weight().name) {
        merge(spec, layer, found->second, values);
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
