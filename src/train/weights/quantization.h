// Quantized weights of a run, configured by the `quantization` section or by a packed model folder.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "config/core/config.h"
#include "model/quantization.h"
#include "model/source.h"
#include "parallel/model_spec.h"
#include "plan/from_config/quantization.h"

namespace lockstep::train {

using plan::packed_as;
using plan::quantization_of;

/// Command line options: --bits, --quant-type, --double-quant.
struct QuantizationFlags {
  int64_t bits = 0;  // 0: not set
  std::string type = "nf4";
  bool double_quant = false;
};
std::optional<model::Quantization> quantization_of(const QuantizationFlags& flags);

/// Converts the quantization to the format of the kernels, with the default type.
ops::PackedFormat format_of(const model::Quantization& quantization);

/// Packs the linears of `spec` except those in `trained`. The config and values of `spec` must be
/// those of the dense model. If the folder is packed, its packing is kept. Otherwise the linears
/// are packed as `asked`, from the type in which the folder stores each weight. Does nothing if
/// neither applies. Throws Error (config, data) if the folder's packing differs from `asked`, or if
/// a packed weight is to be trained.
void request_packing(
    parallel::ModelSpec& spec,
    const std::optional<model::Quantization>& asked,
    const model::ModelSource& source,
    const std::set<std::string>& trained);

/// Throws Error (config) if the model is packed and has no adapters, because there would be nothing
/// to train.
void check_trainable(const std::optional<model::Quantization>& packed, bool has_adapters);

/// Returns a description such as "4 bits (nf4, double quantization)".
std::string text_of(const model::Quantization& quantization);

}  // namespace lockstep::train
