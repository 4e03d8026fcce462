// Initial parameter values: random, from files, or quantized.
#include "parallel/model_spec.h"

#include <map>
#include <utility>

#include <ATen/ops/empty.h>

#include "model/description.h"
#include "nn/initialize.h"

namespace lockstep::parallel {

ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed) {
  return fill_at_random(model::parameters_by_name(config), seed);
}

ModelSpec::Fill fill_at_random(std::map<std::string, model::ParameterSpec> specs, uint64_t seed) {
  return [specs = std::move(specs), seed](
             const std::string& name,
             const ShardedParameter& parameter,
             int64_t begin,
             const Tensor& values) {
    const Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + flat.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          nn::fill_initial(flat.narrow(0, local - begin, count), specs.at(name), seed, whole);
        });
  };
}

namespace {

/// A packed linear layer. The map below is keyed by weight name.
struct PackedLayer {
  model::LayerSpec layer;
  ops::PackedFormat format;
};
std::map<std::string, PackedLayer> packed_layers(
    const model::ModelConfig& config, const nn::Packing& packing) {
  std::map<std::string, PackedLayer> layers;
  for (model::LayerSpec& layer : model::describe(config)) {
    if (const auto found = packing.find(layer.prefix); found != packing.end()) {
      const std::string name = layer.weight().name;
      layers[name] = {std::move(layer), found->second};
    }
  }
  return layers;
}

/// Returns this rank's slice of a packed matrix, where `cut` is the slice of [out, in].
ops::PackedPart part_of(const ops::PackedMatrix& matrix, const mesh::Cut& cut) {
  ops::PackedPart part = ops::PackedPart::whole(matrix.format, matrix.out, matrix.in);
  narrow_packed(part, cut);
  return part;
}

}  // namespace

ModelSpec::Fill fill_packed(
    const model::ModelConfig& config,
    const nn::Packing& packing,
    PackedSource source,
    ModelSpec::Fill rest) {
  return
      [layers = packed_layers(config, packing), source = std::move(source), rest = std::move(rest)](
          const std::string& name,
          const ShardedParameter& parameter,
          int64_t begin,
          const Tensor& values) {
        const auto found = layers.find(name);
        if (found == layers.end()) {
          rest(name, parameter, begin, values);
          return;
        }
        const ops::PackedMatrix matrix = source(name);
        const Tensor flat = values.view({-1});
        if (values.scalar_type() == at::kByte) {
          const Tensor bytes = ops::part_bytes(matrix, part_of(matrix, parameter.cut));
          flat.copy_(bytes.narrow(0, begin, flat.numel()));
          return;
        }
        const Tensor rows = ops::dequantize(matrix);
        const Tensor whole = found->second.layer.in_first ? rows.t().contiguous() : rows;
        mesh::visit_runs(
            parameter.cut,
            parameter.shape,
            begin,
            begin + flat.numel(),
            [&](int64_t local, int64_t first, int64_t count) {
              flat.narrow(0, local - begin, count).copy_(whole.view({-1}).narrow(0, first, count));
            });
      };
}

PackedSource quantized(
    const model::ModelConfig& config, const nn::Packing& packing, ModelSpec::Fill fill) {
  return
      [layers = packed_layers(config, packing), fill = std::move(fill)](const std::string& name) {
        const PackedLayer& packed = layers.at(name);
        const std::vector<int64_t>& shape = packed.layer.weight().shape;
        const Tensor weight = at::empty(shape, at::dtype(packed.format.type));
        fill(name, {shape, {}}, 0, weight);
        return ops::quantize(packed.layer.in_first ? weight.t() : weight, packed.format);
      };
}

}  // namespace lockstep::parallel
