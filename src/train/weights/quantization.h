// Packed weights of a run: from the section `quantization`, or a folder that holds them, to what a
// model is made with.
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

/// The section that flags of a command stand for: --bits, --quant-type, --double-quant.
struct QuantizationFlags {
  int64_t bits = 0;  // 0: not given
  std::string type = "nf4";
  bool double_quant = false;
};
std::optional<model::Quantization> quantization_of(const QuantizationFlags& flags);

/// As the loops know it; its type is the default.
ops::PackedFormat format_of(const model::Quantization& quantization);

/// Packs the linears of `spec`, whose config and values are those of the dense model, but those in
/// `trained`: as the folder holds them, else as it is asked for, in the type that the folder has
/// each weight in. Without effect where neither is so. Error (config, data) where the folder is
/// packed otherwise than asked for, or a packed weight is to be trained.
void request_packing(
    parallel::ModelSpec& spec,
    const std::optional<model::Quantization>& asked,
    const model::ModelSource& source,
    const std::set<std::string>& trained);

/// Error (config) where a model is packed and has no adapters: there would be nothing to train.
void check_trainable(const std::optional<model::Quantization>& packed, bool has_adapters);

/// The words for what is packed: "4 bits (nf4, double quantization)".
std::string text_of(const model::Quantization& quantization);

}  // namespace lockstep::train
