// Checks and describes float8 products.
#include "train/weights/float8.h"

#include "base/format.h"
#include "model/model_config.h"
#include "ops/float8.h"

namespace lockstep::train {

void check_float8(const parallel::ModelSpec& spec) {
  if (spec.float8) {
    const bool is_by_row = spec.float8->scaling == model::Float8::Scaling::kRow;
    ops::check_float8(spec.device, is_by_row ? ops::SharedScale::kRow : ops::SharedScale::kAll);
  }
}

std::string float8_text(
    const model::Float8& float8, const model::ModelConfig& model, c10::Device device) {
  return fmt::format(
      "float8 matrix products in {} linears, one scale per {}, in {} of {} blocks{}",
      model::float8_linears(float8, model).size(),
      model::name_of(float8.scaling),
      model::float8_blocks(float8, model),
      model.layers,
      device.is_cpu() ? "; emulated on the CPU, which is slower" : "");
}

}  // namespace lockstep::train
