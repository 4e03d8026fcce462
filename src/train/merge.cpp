// Merges adapters into base weights.
#include "train/merge.h"

#include <map>
#include <set>
#include <string>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "train/checkpointing.h"
#include "train/weights/model_loading.h"
#include "train/weights/packed_folder.h"
#include "train/weights/quantization.h"
#include "train/weights/stacks.h"

namespace lockstep::train {
namespace {

/// Returns a whole parameter in float32.
at::Tensor values_of(const parallel::ModelSpec& spec, const model::ParameterSpec& parameter) {
  at::Tensor values = at::empty(parameter.shape, at::kFloat);
  spec.fill(parameter.name, {parameter.shape, {}}, 0, values);
  return values;
}

/// Adds the adapter to a layer's weight, in the weight's layout.
void merge(
    const parallel::ModelSpec& spec,
    const model::LayerSpec& layer,
    const model::Adapter& adapter,
    const at::Tensor& weight) {
  if (adapter.rank == 0) {
    weight.index_copy_(0, at::tensor(adapter.tokens), values_of(spec, adapter.parameters[0]));
    return;
  }
  const at::Tensor rows = layer.has_inputs_first() ? weight.t() : weight;  // [out, in]
  const at::Tensor a = values_of(spec, adapter.parameters[0]);
  const at::Tensor b = values_of(spec, adapter.parameters[1]);
  rows.add_(b.mm(a), adapter.scale);
  if (adapter.decomposes) {
    const at::Tensor sizes = values_of(spec, adapter.parameters[2]) / rows.square().sum(1).sqrt();
    rows.mul_(sizes.unsqueeze(1));
  }
}

/// Throws Error (config) if a tied weight would need two different values. This is the case if the
/// adapter changes it only as the embedding or only as the head.
void check_tied(const parallel::ModelSpec& spec) {
  if (spec.adapters == nullptr) {
    return;
  }
  for (const model::LayerSpec& table : model::embeddings_of_stacks(spec.config)) {
    if (spec.adapters->of_layers.count(table.prefix) > 0) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the adapter changes {}, but the model's encoder and decoder share one embedding: "
              "merging would change both",
              table.prefix),
          "use the adapter without merging (--adapter)");
    }
  }
  const auto head = model::tied_head(spec.config);
  if (!spec.config.ties_head()) {
    return;
  }
  for (const auto& [layer, adapter] : spec.adapters->of_layers) {
    const bool of_embedding = layer + ".weight" == model::embedding_name(spec.config);
    if ((head && layer == head->prefix) || (of_embedding && !adapter.of_tied_head)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the adapter only changes {}, but the model's embedding and head share one weight: "
              "merging would change both",
              layer),
          "use the adapter without merging (--adapter), or train one with "
          "lora.ensure_weight_tying=true");
    }
  }
}

}  // namespace

MergedWeights::MergedWeights(
    const model::ModelSource& base, const std::optional<AdapterRequest>& adapter) {
  if (!base.has_weights) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no weights to write", base.name),
        "use a folder with weights; for an adapter, its base model");
  }
  ModelRequest request;
  request.adapter = adapter;
  request.task.head = config_with(base.config, adapter).head;
  spec_ = model_spec(base, request);
  check_tied(spec_);
  spec_.config.quantization.reset();
  generation_ = generation_with(base, adapter);
}

at::Tensor MergedWeights::values(
    const model::LayerSpec& layer, const model::ParameterSpec& parameter) const {
  const at::NoGradGuard no_gradient;
  at::Tensor values = values_of(spec_, parameter);
  const bool is_weight =
      parameter.name == layer.weight().name && layer.kind != model::LayerKind::kHeadBias;
  if (spec_.adapters != nullptr && is_weight) {
    const auto found = spec_.adapters->of_layers.find(layer.prefix);
    if (found != spec_.adapters->of_layers.end()) {
      merge(spec_, layer, found->second, values);
    }
  }
  return values;
}

MergedModel merge_adapter(
    const model::ModelSource& base,
    const std::optional<AdapterRequest>& adapter,
    std::optional<at::ScalarType> type) {
  const MergedWeights weights(base, adapter);
  MergedModel result{
      weights.config(), type.value_or(stored_type(base)), {}, weights.generation(), base.kept};
  for (const model::LayerSpec& layer : model::describe(result.config)) {
    for (const model::ParameterSpec& parameter : layer.parameters) {
      const at::Tensor values = weights.values(layer, parameter).to(result.type);
      result.weights.push_back(
          {"model",
           parameter.name,
           result.type,
           parameter.shape,
           0,
           values.flatten(),
           {},
           written_stack(parameter)});
    }
  }
  return result;
}

void pack(MergedModel& model, model::Quantization quantization) {
  const std::vector<std::string> names = model::packed_linears(quantization, model.config);
  const std::set<std::string> packed(names.begin(), names.end());
  std::map<std::string, model::LayerSpec> layers;  // by the name of the weight
  for (model::LayerSpec& layer : model::describe(model.config)) {
    if (packed.count(layer.prefix) > 0) {
      const std::string weight = layer.weight().name;
      layers.emplace(weight, std::move(layer));
    }
  }
  std::vector<checkpoint::Piece> pieces;
  for (checkpoint::Piece& piece : model.weights) {
    const auto found = layers.find(piece.name);
    if (found == layers.end()) {
      pieces.push_back(std::move(piece));
      continue;
    }
    if (piece.stack) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{} is stored in one tensor with the layer's other experts, which bitsandbytes does "
              "not pack",
              piece.name),
          "exclude them with quantization.skip_modules='[experts]', or export without packing");
    }
    const at::Tensor values = piece.data.view(piece.shape);
    const ops::PackedMatrix matrix =
        ops::quantize(found->second.in_first ? values.t() : values, format_of(quantization));
    for (checkpoint::Piece& part : packed_pieces(found->second.prefix, matrix)) {
      pieces.push_back(std::move(part));
    }
  }
  model.weights = std::move(pieces);
  quantization.compute_type = type_name(model.type);
  model.config.quantization = std::move(quantization);
}

void save_merged(
    const std::filesystem::path& folder,
    const MergedModel& model,
    const text::Tokenizer* tokenizer) {
  comm::Communicator alone = comm::Communicator::alone();
  checkpoint::SmallFiles files =
      model_folder_files(model.config, model.type, tokenizer, model.generation);
  files.insert(model.kept.begin(), model.kept.end());
  checkpoint::save_model(folder, model.weights, files, alone);
}

}  // namespace lockstep::train
