#include "plan/from_config/float8.h"

namespace lockstep::plan {

std::optional<model::Float8> float8_of(const config::PrecisionSection& section) {
  const auto scaling = model::float8_scaling(section.fp8);
  if (!scaling) {
    return std::nullopt;
  }
  return model::Float8{
      *scaling, section.num_layers_at_start_in_bf16, section.num_layers_at_end_in_bf16};
}

}  // namespace lockstep::plan
