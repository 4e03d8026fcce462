// Block-wise 8-bit quantization with ATen operations, for adamw_8bit.cpp. Works on any device
// without synchronization; used on GPUs for sharded parameters. Bit-identical to the loops of
// dynamic_map.h.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "optim/dynamic_map.h"
#include "optim/optimizer.h"

namespace lockstep::optim {

/// Block index of each element of a segment, relative to the segment's first scale. If this rank
/// has a shard of the parameter, blocks are those of the whole parameter.
class BlockPlaces {
 public:
  BlockPlaces(const Segment& segment, bool is_part, c10::Device device);
  /// Returns the block indices of the elements that start at `begin`, int64 [count].
  at::Tensor blocks(int64_t begin, int64_t count) const;

 private:
  c10::Device device_;
  int64_t first_ = 0;            // index of the segment's first element in the slice
  at::Tensor locals_, offsets_;  // int64 [runs]: start of each run, and its offset in the whole
                                 // parameter
};

/// Quantization map in device memory.
struct MapTensors {
  MapTensors(const DynamicMap& map, c10::Device device);
  at::Tensor values;   // [256]
  at::Tensor middles;  // [255]
};

/// Computes out = values[codes] * scales[blocks], float32 [n].
void widen_blocks(
    const MapTensors& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& out);
/// Sets scales[block] to the maximum of its value and the magnitudes in the block.
void take_largest(const at::Tensor& values, const at::Tensor& blocks, const at::Tensor& scales);
/// Computes codes = nearest(values / scales[blocks]).
void round_blocks(
    const MapTensors& map,
    const at::Tensor& values,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& codes);

}  // namespace lockstep::optim
