// 4-bit and 8-bit weight quantization, bitwise compatible with bitsandbytes.
#include "ops/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace lockstep::ops {
namespace {

constexpr std::array<uint32_t, 16> kNf4Bits{
    0xbf800000,
    0xbf3239b1,
    0xbf066b30,
    0xbeca32a0,
    0xbe91a24d,
    0xbe3d353f,
    0xbdba7871,
    0x00000000,
    0x3da2faff,
    0x3e24cae3,
    0x3e7c04dd,
    0x3ead033a,
    0x3ee1a4b8,
    0x3f1007ab,
    0x3f3913b3,
    0x3f800000};
constexpr std::array<uint32_t, 16> kFp4Bits{
    0x00000000,
    0x3baaaaab,
    0x3f2aaaab,
    0x3f800000,
    0x3eaaaaab,
    0x3f000000,
    0x3e2aaaab,
    0x3e800000,
    0x00000000,
    0xbbaaaaab,
    0xbf2aaaab,
    0xbf800000,
    0xbeaaaaab,
    0xbf000000,
    0xbe2aaaab,
    0xbe800000};

/// Number of values that are processed together in separate loops, so that the compiler can
/// vectorize each loop.
constexpr int64_t kRun = 64;

/// Returns the codes of values that were divided by their block's largest magnitude. A block of
/// zeros gives NaN, whose code is 0 because every comparison is false.
class Nf4Codes {
 public:
  Nf4Codes() {
    const std::array<float, 16>& values = values_of(PackedKind::kNf4);
    for (size_t i = 0; i < 15; ++i) {
      middles_[i] = (values[i] + values[i + 1]) / 2.0F;
    }
  }
  void operator()(const std::array<float, kRun>& numbers, std::array<int32_t, kRun>& codes) const {
    codes.fill(0);
    for (const float middle : middles_) {
      for (size_t i = 0; i < kRun; ++i) {
        codes[i] += numbers[i] > middle ? 1 : 0;
      }
    }
  }

 private:
  std::array<float, 15> middles_{};
};

/// Computes codes with the bounds that bitsandbytes uses, which are not exactly the midpoints.
class Fp4Codes {
 public:
  void operator()(const std::array<float, kRun>& numbers, std::array<int32_t, kRun>& codes) const {
    constexpr std::array<float, 7> kBounds{
        0.00260417F, 0.0859375F, 0.20833333F, 0.29166667F, 0.4166667F, 0.583333F, 0.8333333F};
    constexpr std::array<int32_t, 8> kCodes{0, 1, 6, 7, 4, 5, 2, 3};
    codes.fill(0);
    for (const float bound : kBounds) {
      for (size_t i = 0; i < kRun; ++i) {
        codes[i] += std::fabs(numbers[i]) > bound ? 1 : 0;
      }
    }
    for (size_t i = 0; i < kRun; ++i) {
      codes[i] = kCodes[static_cast<size_t>(codes[i])] | (numbers[i] < 0 ? 8 : 0);
    }
  }
};

/// Quantizes the blocks [begin, end). The codes of a block start at a whole byte.
template <class Codes>
void quantize_blocks(
    const Codes& codes_of,
    const float* weight,
    int64_t elements,
    int64_t block_size,
    int64_t begin,
    int64_t end,
    uint8_t* codes,
    float* scales) {
  std::array<float, kRun> numbers{};
  std::array<int32_t, kRun> found{};
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * block_size, last = std::min(first + block_size, elements);
    float most = 0;
    for (int64_t i = first; i < last; ++i) {
      most = std::max(most, std::fabs(weight[i]));
    }
    scales[block] = most;
    const float factor = 1.0F / most;
    for (int64_t i = first; i < last; i += kRun) {
      const int64_t count = std::min(kRun, last - i);
      numbers.fill(0);  // an odd end is padded with zero
      for (int64_t k = 0; k < count; ++k) {
        numbers[static_cast<size_t>(k)] = weight[i + k] * factor;
      }
      codes_of(numbers, found);
      for (int64_t k = 0; k < count; k += 2) {
        const auto at = static_cast<size_t>(k);
        codes[(i + k) / 2] = static_cast<uint8_t>(found[at] << 4 | found[at + 1]);
      }
    }
  }
}

template <class Codes>
void quantize_4_bits(const Tensor& weight, PackedMatrix& matrix, const Tensor& scales) {
  const Codes codes_of;
  const float* from = weight.const_data_ptr<float>();
  auto* codes = matrix.codes.mutable_data_ptr<uint8_t>();
  auto* to = scales.mutable_data_ptr<float>();
  constexpr int64_t kLeast = 1 << 14;  // minimum number of elements per thread
  const int64_t block = matrix.format.block_size;
  at::parallel_for(
      0, matrix.blocks(), std::max<int64_t>(kLeast / block, 1), [&](int64_t begin, int64_t end) {
        quantize_blocks(codes_of, from, weight.numel(), block, begin, end, codes, to);
      });
}

/// Quantizes W in float16 by the largest magnitude of each row. A row of zeros remains zero.
void quantize_8_bits(const Tensor& weight, PackedMatrix& matrix) {
  const Tensor halves = weight.to(at::kHalf).to(at::kFloat);
  matrix.scales = matrix.in == 0 ? at::zeros({matrix.out}) : halves.abs().amax(1);
  const Tensor factors = (127.0F / matrix.scales).unsqueeze(1);
  const Tensor is_zero = (matrix.scales == 0).unsqueeze(1);
  matrix.codes = (halves * factors).round().masked_fill(is_zero, 0).to(at::kChar);
}

std::array<float, 256> make_nested_values() {
  constexpr int kDecades = 7;
  std::vector<float> values{0, 1};
  for (int decade = 0; decade < kDecades; ++decade) {
    // Midpoints of equal intervals of [0.1, 1], scaled by the decade. Each bound is computed from
    // the nearer end and rounded once.
    const int bounds = (1 << decade) + 1;
    const float step = (1.0F - 0.1F) / static_cast<float>(bounds - 1);
    const auto bound = [&](int i) {
      return i < bounds / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                            : std::fma(-step, static_cast<float>(bounds - 1 - i), 1.0F);
    };
    const auto scale = static_cast<float>(std::pow(10.0, decade - (kDecades - 1)));
    for (int i = 0; i + 1 < bounds; ++i) {
      const float value = (bound(i) + bound(i + 1)) / 2.0F * scale;
      values.push_back(value);
      values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> result{};
  std::copy(values.begin(), values.end(), result.begin());
  return result;
}

/// Returns the code of the nearest value.
uint8_t nearest(const std::array<float, 256>& values, float value) {
  const auto above = std::lower_bound(values.begin(), values.end() - 1, value);
  if (above == values.begin()) {
    return 0;
  }
  const auto code = above - values.begin();
  return static_cast<uint8_t>(value - *(above - 1) <= *above - value ? code - 1 : code);
}

Tensor copy_of(const auto& values) {
  return at::tensor(c10::ArrayRef<float>(values.data(), values.size()), at::kFloat);
}

}  // namespace

const std::array<float, 16>& values_of(PackedKind kind) {
  static const auto nf4 = std::bit_cast<std::array<float, 16>>(kNf4Bits);
  static const auto fp4 = std::bit_cast<std::array<float, 16>>(kFp4Bits);
  return kind == PackedKind::kFp4 ? fp4 : nf4;
}

const std::array<float, 256>& nested_values() {
  static const std::array<float, 256> values = make_nested_values();
  return values;
}

void nest_scales(PackedMatrix& matrix, const Tensor& scales) {
  const auto* from = scales.const_data_ptr<float>();
  const int64_t count = scales.numel();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(from[i]);
  }
  const auto offset = static_cast<float>(count > 0 ? sum / static_cast<double>(count) : 0.0);
  matrix.nested_offset = offset;
  matrix.nested_values = copy_of(nested_values());
  matrix.nested_scales = at::empty({(count + kNestedBlock - 1) / kNestedBlock});
  matrix.scales = at::empty({count}, at::kByte);
  auto* codes = matrix.scales.mutable_data_ptr<uint8_t>();
  auto* nested = matrix.nested_scales.mutable_data_ptr<float>();
  for (int64_t first = 0; first < count; first += kNestedBlock) {
    const int64_t last = std::min(first + kNestedBlock, count);
    float most = 0;
    for (int64_t i = first; i < last; ++i) {
      most = std::max(most, std::fabs(from[i] - offset));
    }
    nested[first / kNestedBlock] = most;
    const float factor = most > 0 ? 1.0F / most : 0.0F;
    for (int64_t i = first; i < last; ++i) {
      codes[i] = nearest(nested_values(), (from[i] - offset) * factor);
    }
  }
}

PackedMatrix quantize(const Tensor& weight, PackedFormat format) {
  PackedMatrix matrix;
  format.type = weight.scalar_type();
  matrix.format = format;
  matrix.out = weight.size(0);
  matrix.in = weight.size(1);
  const Tensor plain = weight.to(at::kFloat).contiguous();
  if (format.kind == PackedKind::kInt8) {
    quantize_8_bits(plain, matrix);
    return matrix;
  }
  matrix.codes = at::empty({(weight.numel() + 1) / 2}, at::kByte);
  matrix.values = copy_of(values_of(format.kind));
  const Tensor scales = at::empty({matrix.blocks()});
  if (format.kind == PackedKind::kNf4) {
    quantize_4_bits<Nf4Codes>(plain, matrix, scales);
  } else {
    quantize_4_bits<Fp4Codes>(plain, matrix, scales);
  }
  matrix.scales = scales;
  if (format.is_nested) {
    nest_scales(matrix, scales);
  }
  return matrix;
}

Tensor block_scales(const PackedMatrix& matrix) {
  if (!matrix.format.is_nested) {
    return matrix.scales;
  }
  const Tensor of_blocks =
      matrix.nested_scales.repeat_interleave(kNestedBlock).narrow(0, 0, matrix.scales.numel());
  return matrix.nested_values.index_select(0, matrix.scales.to(at::kInt)) * of_blocks +
         matrix.nested_offset;
}

Tensor dequantize(const PackedMatrix& matrix) {
  if (matrix.format.kind == PackedKind::kInt8) {
    return matrix.codes.to(at::kFloat) * (matrix.scales / 127.0F).unsqueeze(1);
  }
  const Tensor halves =
      at::stack({matrix.codes.bitwise_right_shift(4), matrix.codes.bitwise_and(15)}, 1);
  const int64_t elements = matrix.out * matrix.in;
  const Tensor values =
      matrix.values.index_select(0, halves.flatten().to(at::kInt)).narrow(0, 0, elements);
  const Tensor scales =
      block_scales(matrix).repeat_interleave(matrix.format.block_size).narrow(0, 0, elements);
  return (values * scales).to(matrix.format.type).to(at::kFloat).view({matrix.out, matrix.in});
}

}  // namespace lockstep::ops
