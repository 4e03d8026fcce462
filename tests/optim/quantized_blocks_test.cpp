#include "optim/quantized_blocks.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::optim {
namespace quantized_blocks_test {

/// Three blocks and a part of one; the second is zeros.
at::Tensor numbers(bool is_signed) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({3 * kQuantizedBlock + 17}).pow(3);
  x.narrow(0, kQuantizedBlock, kQuantizedBlock).zero_();
  return is_signed ? x : x.square();
}

TEST(QuantizedBlocks, TensorsGiveTheCodesOfTheLoops) {
  for (const bool is_signed : {true, false}) {
    const DynamicMap& map = is_signed ? DynamicMap::of_signed() : DynamicMap::of_unsigned();
    const at::Tensor x = numbers(is_signed);
    const at::Tensor codes = at::empty(x.sizes(), at::kByte), others = at::empty_like(codes);
    const at::Tensor scales = at::empty({4}), other_scales = at::empty({4});
    for (int64_t block = 0; block < 4; ++block) {
      const int64_t begin = block * kQuantizedBlock;
      quantize_block(
          map,
          x.const_data_ptr<float>() + begin,
          std::min(kQuantizedBlock, x.numel() - begin),
          codes.mutable_data_ptr<uint8_t>() + begin,
          scales.mutable_data_ptr<float>()[block]);
    }
    round_blocks_by_tensors(map, x, others, other_scales);
    EXPECT_TRUE(at::equal(codes, others));
    EXPECT_TRUE(at::equal(scales, other_scales));
    EXPECT_EQ(scales[1].item<float>(), 0);
    const at::Tensor wide = at::empty_like(x), other_wide = at::empty_like(x);
    widen_blocks(map, codes, scales, wide);
    widen_blocks_by_tensors(map, codes, scales, other_wide);
    EXPECT_TRUE(at::equal(wide, other_wide));
    EXPECT_LT((wide - x).abs().max().item<double>(), 0.02 * x.abs().max().item<double>());
    EXPECT_GT(std::get<0>(at::_unique(codes)).numel(), 50);
  }
}

}  // namespace quantized_blocks_test
}  // namespace lockstep::optim
