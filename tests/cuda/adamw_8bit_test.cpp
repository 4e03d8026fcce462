// The 8-bit AdamW kernel, executed on a CPU (on_cpu.h), is bitwise equal to the CPU loops.
#include "cuda/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/number.h"
#include "ops/cpu/adamw_kernel.h"
#include "optim/dynamic_map.h"

namespace lockstep::cuda {
namespace adamw_8bit_test {

using optim::DynamicMap;
using optim::kQuantizedBlock;

constexpr size_t kCount =
    9 * 256 + 37;  // more code blocks than a block has threads; the last one is partial
constexpr size_t kBlocks = 10;
const std::vector<float> kNumbers{0.5F, 0.999F, 0.9F, 0.1F, 0.99F, 0.01F, 1e-3F, 2.0F, 1e-6F};

struct Moment {
  std::vector<uint8_t> codes = std::vector<uint8_t>(kCount);
  std::vector<float> scales = std::vector<float>(kBlocks);

  void round(const DynamicMap& map, const std::vector<float>& values) {
    for (size_t block = 0; block < kBlocks; ++block) {
      const size_t begin = block * kQuantizedBlock;
      const auto some = static_cast<int64_t>(std::min<size_t>(kQuantizedBlock, kCount - begin));
      optim::quantize_block(map, values.data() + begin, some, codes.data() + begin, scales[block]);
    }
  }
  std::vector<float> widened(const DynamicMap& map) const {
    std::vector<float> values;
    for (size_t i = 0; i < kCount; ++i) {
      values.push_back(map.values()[codes[i]] * scales[i / kQuantizedBlock]);
    }
    return values;
  }
  bool operator==(const Moment& other) const = default;
};

struct Given {
  std::vector<float> gradient, weight;
  std::vector<__nv_bfloat16> low_gradient, low;
  Moment exp_avg, exp_avg_sq;
};

/// Draws values at `offset`: pack loads are used only if the start is aligned.
Given draw(size_t offset) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  Given made;
  std::vector<float> m, v;
  for (size_t i = 0; i < offset + kCount; ++i) {
    made.gradient.push_back(normal(generator) * std::exp(2 * normal(generator)));
    made.weight.push_back(normal(generator));
    made.low_gradient.push_back(__float2bfloat16(made.gradient.back()));
    if (i < kCount) {
      m.push_back(normal(generator));
      v.push_back(m.back() * m.back());
    }
  }
  for (size_t i = 512; i < 768; ++i) {  // a block that remains zero
    m[i] = v[i] = made.gradient[offset + i] = 0;
    made.low_gradient[offset + i] = __float2bfloat16(0);
  }
  made.low.resize(offset + kCount);
  made.exp_avg.round(DynamicMap::of_signed(), m);
  made.exp_avg_sq.round(DynamicMap::of_unsigned(), v);
  return made;
}

/// `Gradient` is the type of the gradient; for bfloat16 the kernel also writes rounded weights.
template <class Gradient>
void expect_the_loops_bits(size_t offset) {
  constexpr bool kIsLow = !std::is_same_v<Gradient, float>;
  const DynamicMap &first = DynamicMap::of_signed(), &second = DynamicMap::of_unsigned();
  Given loops = draw(offset), kernel = draw(offset);
  std::vector<float> m = loops.exp_avg.widened(first), v = loops.exp_avg_sq.widened(second);
  const ops::kernel::AdamWFactors factors{
      kNumbers[0],
      kNumbers[1],
      kNumbers[2],
      kNumbers[3],
      kNumbers[4],
      kNumbers[5],
      kNumbers[6],
      kNumbers[7],
      kNumbers[8]};
  const auto update = [&](const auto* gradient) {
    ops::kernel::AdamWArrays<std::remove_cvref_t<decltype(*gradient)>> arrays{
        gradient,
        loops.weight.data() + offset,
        m.data(),
        v.data(),
        kIsLow ? reinterpret_cast<ops::kernel::Bfloat16*>(loops.low.data() + offset) : nullptr};
    ops::kernel::adamw(factors, kCount, arrays);
  };
  if constexpr (kIsLow) {
    update(reinterpret_cast<const ops::kernel::Bfloat16*>(loops.low_gradient.data() + offset));
  } else {
    update(static_cast<const float*>(loops.gradient.data() + offset));
  }
  loops.exp_avg.round(first, m);
  loops.exp_avg_sq.round(second, v);

  std::vector<float> maps;
  for (const DynamicMap* map : {&first, &second}) {
    maps.insert(maps.end(), map->values().begin(), map->values().end());
    maps.insert(maps.end(), map->middles().begin(), map->middles().end());
  }
  AdamW8bitPointers pointers;
  pointers.gradient = kIsLow ? nullptr : kernel.gradient.data() + offset;
  pointers.low_gradient = kIsLow ? kernel.low_gradient.data() + offset : nullptr;
  pointers.weight = kernel.weight.data() + offset;
  pointers.low = kIsLow ? kernel.low.data() + offset : nullptr;
  pointers.exp_avg = kernel.exp_avg.codes.data();
  pointers.exp_avg_sq = kernel.exp_avg_sq.codes.data();
  pointers.exp_avg_absmax = kernel.exp_avg.scales.data();
  pointers.exp_avg_sq_absmax = kernel.exp_avg_sq.scales.data();
  pointers.maps = maps.data();
  adamw_8bit(pointers, kNumbers.data(), kCount, nullptr);
  EXPECT_EQ(kernel.weight, loops.weight);
  EXPECT_EQ(kernel.exp_avg, loops.exp_avg);
  EXPECT_EQ(kernel.exp_avg_sq, loops.exp_avg_sq);
  const size_t bytes = kernel.low.size() * sizeof(__nv_bfloat16);
  EXPECT_EQ(std::memcmp(kernel.low.data(), loops.low.data(), bytes), 0);
}

TEST(Kernels, AdamWOf8BitsGivesTheBitsOfCpus) {
  for (const size_t offset : {0, 1}) {
    expect_the_loops_bits<float>(offset);
    expect_the_loops_bits<__nv_bfloat16>(offset);
  }
}

}  // namespace adamw_8bit_test
}  // namespace lockstep::cuda
