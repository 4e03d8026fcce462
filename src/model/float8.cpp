// Selects the linear layers that multiply in float8.
#include "model/float8.h"

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "model/model_config.h"

namespace lockstep::model {

std::optional<Float8::Scaling> float8_scaling(std::string_view name) {
  return name == "row" || name == "rowwise"         ? std::optional(Float8::Scaling::kRow)
         : name == "tensor" || name == "tensorwise" ? std::optional(Float8::Scaling::kTensor)
                                                    : std::nullopt;
}

std::string_view name_of(Float8::Scaling scaling) {
  return scaling == Float8::Scaling::kRow ? "row" : "tensor";
}

int64_t float8_blocks(const Float8& float8, const ModelConfig& model) {
  const int64_t blocks = model.layers - float8.first - float8.last;
  if (blocks <= 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "precision.fp8={}: the model has {} block{}, of which the first {} and the last {} use "
            "bfloat16, so that no block would use float8",
            name_of(float8.scaling),
            model.layers,
            model.layers == 1 ? "" : "s",
            float8.first,
            float8.last),
        "set precision.num_layers_at_start_in_bf16=0 and precision.num_layers_at_end_in_bf16=0, or "
        "remove precision.fp8");
  }
  return blocks;
}

std::set<std::string> float8_linears(const Float8& float8, const ModelConfig& model) {
  if (float8.scaling == Float8::Scaling::kTensor && model.experts.count > 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "precision.fp8=tensor: the model has {} experts, and the scale of an expert's input "
            "would depend on tokens of other sequences",
            model.experts.count),
        "use precision.fp8=row");
  }
  const int64_t end = float8.first + float8_blocks(float8, model);
  std::set<std::string> linears;
  for (const LayerSpec& layer : describe(model)) {
    if (layer.kind == LayerKind::kLinear && layer.block >= float8.first && layer.block < end &&
        layer.role != "shared_weight") {
      linears.insert(layer.prefix);
    }
  }
  return linears;
}

}  // namespace lockstep::model
