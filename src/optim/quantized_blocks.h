// Block-wise 8-bit quantization for adamw_8bit.cpp with ATen operations: works on any device
// without synchronization; on GPUs it is used for sharded parameters. Bit-identical to the loops of
// dynamic_map.h.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "optim/dynamic_map.h"
#include "optim/optimizer.h"

namespace lockstep::optim {

/// Block index of each element of a segment, relative to the segment's first scale. Blocks belong
/// to the whole parameter if this rank has a shard of it.
class BlockPlaces {
 public:
  BlockPlaces(const Segment& segment, bool is_part, c10::Device device);
  /// int64 [count], for the elements starting at `begin`.
  at::Tensor blocks(int64_t begin, int64_t count) const;

 private:
  c10::Device device_;
  int64_t first_ = 0;            // index of the segment's first element in the slice
  at::Tensor locals_, offsets_;  // int64 [runs]: start of each run, offset to the whole parameter
};

/// Quantization map on a device.
struct MapTensors {
  MapTensors(const DynamicMap& map, c10::Device device);
  at::Tensor values;   // [256]
  at::Tensor middles;  // [255]
};

/// out = values[codes] * scales[blocks]; float32 [n].
void widen_blocks(
    const MapTensors& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& out);
/// Sets scales[block] to the maximum of itself and the block's magnitudes.
void take_largest(const at::Tensor& values, const at::Tensor& blocks, const at::Tensor& scales);
/// codes = nearest(values / scales[blocks]).
void round_blocks(
    const MapTensors& map,
    const at::Tensor& values,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& codes);

}  // namespace lockstep::optim
