#include "plan/from_config/quantization.h"

namespace lockstep::plan {

using model::Quantization;

std::optional<Quantization> quantization_of(const config::QuantizationSection& section) {
  if (!section.bits) {
    return std::nullopt;
  }
  Quantization result;
  result.bits = *section.bits;
  result.type = model::quantization_type(section.type.value_or("nf4")).value();
  result.double_quant = section.double_quant.value_or(false);
  result.block_size = section.block_size.value_or(result.block_size);
  result.skip_modules = section.skip_modules;
  return result;
}

std::optional<Quantization> packed_as(
    const model::ModelConfig& folder, const config::QuantizationSection& asked) {
  return folder.quantization ? folder.quantization : quantization_of(asked);
}

}  // namespace lockstep::plan
