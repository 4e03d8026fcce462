// Block-wise quantization with device operations: bit-identical to the CPU loops.
#include "optim/quantized_blocks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::optim {
namespace quantized_blocks_test {

using at::Tensor;

struct Rounded {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

/// Result of the CPU loops for elements in these blocks.
Rounded by_loops(const DynamicMap& map, const Tensor& values, const std::vector<int64_t>& blocks) {
  Rounded made{std::vector<uint8_t>(blocks.size()), std::vector<float>(size_t(blocks.back()) + 1)};
  const float* value = values.const_data_ptr<float>();
  for (size_t i = 0; i < blocks.size(); ++i) {
    float& scale = made.scales[static_cast<size_t>(blocks[i])];
    scale = std::max(scale, largest_magnitude(value + i, 1));
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    quantize_by(map, value + i, 1, made.scales[static_cast<size_t>(blocks[i])], &made.codes[i]);
  }
  return made;
}

void expect_the_same(const Segment& segment, bool is_part, const std::vector<int64_t>& wanted) {
  const BlockPlaces places(segment, is_part, at::kCPU);
  for (const DynamicMap* map : {&DynamicMap::of_signed(), &DynamicMap::of_unsigned()}) {
    Tensor values = at::randn({segment.count}) * at::randn({segment.count}).exp();
    if (map == &DynamicMap::of_unsigned()) {
      values = values.abs();
    }
    values.narrow(0, 0, 3).zero_();
    const Rounded loops = by_loops(*map, values, wanted);
    const MapTensors on_device(*map, at::kCPU);
    const Tensor scales = at::zeros({std::ssize(loops.scales)});
    const Tensor codes = at::zeros({segment.count}, at::kByte), wide = at::empty({segment.count});
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>(0, 512), {512, -1}}) {
      const int64_t run = count < 0 ? segment.count - begin : count;
      take_largest(values.narrow(0, begin, run), places.blocks(begin, run), scales);
    }
    const Tensor blocks = places.blocks(0, segment.count);
    round_blocks(on_device, values, scales, blocks, codes);
    widen_blocks(on_device, codes, scales, blocks, wide);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      ASSERT_EQ(blocks[at].item<int64_t>(), wanted[i]) << i;
      ASSERT_EQ(codes[at].item<uint8_t>(), loops.codes[i]) << i << ' ' << values[at];
      ASSERT_EQ(
          wide[at].item<float>(),
          map->values()[loops.codes[i]] * loops.scales[static_cast<size_t>(wanted[i])]);
    }
  }
}

TEST(QuantizedBlocks, OfAWholeParameterAreCountedFromItsFirstElementHere) {
  torch::manual_seed(1);
  Segment segment{"matrix", {64, 100}, /*begin=*/1024, /*offset=*/0, /*count=*/1000};
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < segment.count; ++i) {
    blocks.push_back(i / kQuantizedBlock);
  }
  expect_the_same(segment, /*is_part=*/false, blocks);
}

/// Some elements of a slice of a matrix's columns: the blocks are those of the whole matrix.
TEST(QuantizedBlocks, OfAPartAreTheWholes) {
  torch::manual_seed(2);
  Segment segment{"matrix", {64, 37}, /*begin=*/50, /*offset=*/0, /*count=*/1500};
  segment.whole_shape = {64, 100};
  segment.cut = {1, {{10, 30}, {63, 80}}};
  std::vector<int64_t> blocks;
  for (int64_t i = segment.begin; i < segment.begin + segment.count; ++i) {
    const int64_t row = i / 37, column = i % 37;
    const int64_t whole = column < 20 ? 10 + column : 63 + column - 20;
    blocks.push_back((row * 100 + whole) / kQuantizedBlock);
  }
  expect_the_same(segment, /*is_part=*/true, blocks);
}

}  // namespace quantized_blocks_test
}  // namespace lockstep::optim
