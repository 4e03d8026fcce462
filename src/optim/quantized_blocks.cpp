// Block-wise quantization of moments with ATen operations.
#include "optim/quantized_blocks.h"

#include <vector>

#include <ATen/ATen.h>

namespace lockstep::optim {

BlockPlaces::BlockPlaces(const Segment& segment, bool is_part, c10::Device device)
    : device_(device) {
  if (!is_part) {
    return;
  }
  first_ = segment.begin;
  std::vector<int64_t> locals, offsets;
  mesh::visit_runs(
      segment.cut,
      segment.whole_shape,
      segment.begin,
      segment.begin + segment.count,
      [&](int64_t local, int64_t whole, int64_t /*count*/) {
        locals.push_back(local);
        offsets.push_back(whole - local);
      });
  locals_ = at::tensor(locals, at::kLong).to(device);
  offsets_ = at::tensor(offsets, at::kLong).to(device);
}

at::Tensor BlockPlaces::blocks(int64_t begin, int64_t count) const {
  at::Tensor places =
      at::arange(first_ + begin, first_ + begin + count, at::dtype(at::kLong).device(device_));
  if (locals_.defined()) {  // finds the last run that starts at or before the element
    places.add_(offsets_.index_select(0, at::bucketize(places, locals_, false, true).sub_(1)));
  }
  return places.floor_divide_(kQuantizedBlock);
}

MapTensors::MapTensors(const DynamicMap& map, c10::Device device)
    : values(at::tensor(at::ArrayRef<float>(map.values())).to(device)),
      middles(at::tensor(at::ArrayRef<float>(map.middles().data(), 255)).to(device)) {}

void widen_blocks(
    const MapTensors& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& out) {
  at::index_select_out(const_cast<at::Tensor&>(out), map.values, 0, codes.to(at::kInt));
  out.mul_(scales.index_select(0, blocks));
}

void take_largest(const at::Tensor& values, const at::Tensor& blocks, const at::Tensor& scales) {
  scales.scatter_reduce_(0, blocks, values.abs(), "amax", /*include_self=*/true);
}

void round_blocks(
    const MapTensors& map,
    const at::Tensor& values,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& codes) {
  const at::Tensor inverse = at::where(scales > 0, scales.reciprocal(), 0.0F);
  const at::Tensor shares = values.mul(inverse.index_select(0, blocks)).clamp_(-1, 1);
  codes.copy_(at::bucketize(shares, map.middles, /*out_int32=*/true));
}

}  // namespace lockstep::optim
