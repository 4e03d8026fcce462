// What adamw_8bit.cpp does with blocks of 256 numbers of 8 bits, in ATen's operations: on any
// device, and without waiting for it; on GPUs of parameters that are cut. To the same bits as the
// loops of dynamic_map.h.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "optim/dynamic_map.h"
#include "optim/optimizer.h"

namespace lockstep::optim {

/// In which block each element of a segment stands: of its parameter, or, where that is cut, of the
/// whole that it is a part of; counted from the first that the segment has a scale of.
class BlockPlaces {
 public:
  BlockPlaces(const Segment& segment, bool is_part, c10::Device device);
  /// int64 [count], of the elements from `begin` on.
  at::Tensor blocks(int64_t begin, int64_t count) const;

 private:
  c10::Device device_;
  int64_t first_ = 0;            // of the segment's elements, in the part
  at::Tensor locals_, offsets_;  // int64 [runs]: where each begins, and what leads to the whole
};

/// A map on a device.
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
/// scales[block] becomes the largest of itself and of the block's magnitudes.
void take_largest(const at::Tensor& values, const at::Tensor& blocks, const at::Tensor& scales);
/// codes = nearest(values / scales[blocks]).
void round_blocks(
    const MapTensors& map,
    const at::Tensor& values,
    const at::Tensor& scales,
    const at::Tensor& blocks,
    const at::Tensor& codes);

}  // namespace lockstep::optim
