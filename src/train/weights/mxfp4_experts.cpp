// Unpacks MXFP4 expert weights.
#include "train/weights/mxfp4_experts.h"

#include <array>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::train {
namespace {

constexpr int64_t kBlock = 32;  // elements per scale
constexpr int kExponentBias = 127;
/// Values of E2M1 codes: one sign bit, two exponent bits, one mantissa bit.
constexpr std::array<float, 16> kValues{
    0.0F,
    0.5F,
    1.0F,
    1.5F,
    2.0F,
    3.0F,
    4.0F,
    6.0F,
    -0.0F,
    -0.5F,
    -1.0F,
    -1.5F,
    -2.0F,
    -3.0F,
    -4.0F,
    -6.0F};

/// Throws unless the shape is [experts, out, in / 32] or [experts, out, in / 32, of_block].
void require_bytes(
    const checkpoint::TensorFiles& files,
    const std::string& name,
    const std::vector<int64_t>& stack,
    int64_t of_block) {
  std::vector<int64_t> shape{stack[0], stack[2], stack[1] / kBlock};
  if (of_block > 1) {
    shape.push_back(of_block);
  }
  const bool fits = stack[1] % kBlock == 0 && files.contains(name) &&
                    files.tensor(name).shape == shape &&
                    checkpoint::scalar_type(files.tensor(name).dtype) == at::kByte;
  if (!fits) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the packed experts of {}: {} does not exist as {} bytes",
            files.folder().string(),
            name,
            fmt::join(shape, "x")),
        "check that config.json belongs to these weights, or save the model unpacked with "
        "transformers (Mxfp4Config(dequantize=True))");
  }
}

}  // namespace

Mxfp4Experts::Mxfp4Experts(
    const checkpoint::ModelFolder& folder, const std::vector<model::ParameterSpec>& parameters) {
  for (const model::ParameterSpec& parameter : parameters) {
    const auto& stack = parameter.stacked;
    if (!stack || stack->shape.size() != 3 || folder.contains(stack->name)) {
      continue;
    }
    const auto blocks = folder.stored_name(stack->name + "_blocks");
    if (!blocks) {
      continue;
    }
    const std::string scales =
        blocks->substr(0, blocks->size() - std::string_view("blocks").size()) + "scales";
    if (tensors_.insert(*blocks).second) {
      tensors_.insert(scales);
      require_bytes(folder.files(), *blocks, stack->shape, kBlock / 2);
      require_bytes(folder.files(), scales, stack->shape, 1);
    }
    const int64_t in = stack->shape[1], out = stack->shape[2];
    packed_[parameter.name] = {*blocks, scales, in, out, stack->offset / in};
  }
}

void Mxfp4Experts::read(
    const checkpoint::ModelFolder& folder,
    const std::string& parameter,
    int64_t begin,
    const at::Tensor& out) const {
  const Packed& packed = packed_.at(parameter);
  const auto blocks = folder.files().bytes(packed.blocks);
  const auto scales = folder.files().bytes(packed.scales);
  const bool is_direct = out.is_cpu() && out.scalar_type() == at::kFloat && out.is_contiguous();
  const at::Tensor values = is_direct ? out : at::empty({out.numel()}, at::kFloat);
  auto* to = values.mutable_data_ptr<float>();
  constexpr int64_t kGrain = 1 << 14;
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      // The file stores `out` rows of length `in`. They are the columns of the parameter.
      const int64_t column = (begin + i) / packed.out;
      const int64_t at = (packed.first_row + (begin + i) % packed.out) * packed.in + column;
      const auto pair = std::to_integer<unsigned>(blocks[static_cast<size_t>(at / 2)]);
      const auto scale = std::to_integer<int>(scales[static_cast<size_t>(at / kBlock)]);
      to[i] = std::ldexp(kValues[at % 2 == 0 ? pair & 15U : pair >> 4U], scale - kExponentBias);
    }
  });
  if (!is_direct) {
    out.view({-1}).copy_(values);
  }
}

}  // namespace lockstep::train
