// Stochastic rounding to bfloat16 on CPUs and devices.
#include "optim/stochastic_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "base/counter_random.h"
#include "ops/cpu/host_loops.h"

namespace lockstep::optim {
namespace {

constexpr int64_t kGrain = 16384;

uint64_t key_of(const Segment& segment, uint64_t seed, int64_t step) {
  uint64_t key = derive_key(seed, static_cast<uint64_t>(step));
  for (const char letter : segment.parameter) {
    key = derive_key(key, static_cast<unsigned char>(letter));
  }
  return key;
}

/// Returns sixteen random bits. Four elements share one word of 64 random bits.
uint32_t sixteen_bits(uint64_t key, uint64_t element) {
  return static_cast<uint32_t>(random_bits(key, element / 4) >> (element % 4 * 16)) & 0xffffU;
}

/// Adds random bits to the bits that will be truncated. A carry rounds up, with a probability
/// proportional to these bits.
uint16_t round_one(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + random) >> 16);
}

void round_on_cpu(const float* from, uint16_t* to, int64_t count, uint64_t key, uint64_t first) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (std::isfinite(from[i])) {
        to[i] = round_one(from[i], sixteen_bits(key, first + static_cast<uint64_t>(i)));
      }
    }
  });
}

/// Logical right shift of int64 values that represent uint64.
at::Tensor shifted(const at::Tensor& x, int64_t bits) {
  return at::bitwise_and(
      at::bitwise_right_shift(x, bits), static_cast<int64_t>(~uint64_t{0} >> bits));
}

at::Tensor mixed(at::Tensor x) {
  x = at::bitwise_xor(x, shifted(x, 30)) * static_cast<int64_t>(0xbf58476d1ce4e5b9ULL);
  x = at::bitwise_xor(x, shifted(x, 27)) * static_cast<int64_t>(0x94d049bb133111ebULL);
  return at::bitwise_xor(x, shifted(x, 31));
}

/// Bit-identical version with ATen operations. Called for chunks, because it needs six int64
/// temporaries.
void round_run(const at::Tensor& from, const at::Tensor& to, uint64_t key, int64_t first) {
  const at::Tensor element =
      at::arange(first, first + from.numel(), from.options().dtype(at::kLong));
  const at::Tensor counter =
      mixed(shifted(element, 2) + static_cast<int64_t>(0x9e3779b97f4a7c15ULL));
  const at::Tensor word = mixed(at::bitwise_xor(counter, static_cast<int64_t>(key)));
  const at::Tensor random = at::bitwise_and(
      at::bitwise_right_shift(word, at::bitwise_and(element, 3) * 16), int64_t{0xffff});
  const at::Tensor bits = from.view(at::kInt).to(at::kLong) + random;
  const at::Tensor rounded = at::bitwise_and(bits, int64_t{-65536}).to(at::kInt).view(at::kFloat);
  to.copy_(at::where(at::isfinite(from), rounded, from));
}

void round_by_tensors(const at::Tensor& from, const at::Tensor& to, uint64_t key, int64_t first) {
  constexpr int64_t kRun = int64_t{1} << 24;
  for (int64_t begin = 0; begin < from.numel(); begin += kRun) {
    const int64_t count = std::min(kRun, from.numel() - begin);
    round_run(from.narrow(0, begin, count), to.narrow(0, begin, count), key, first + begin);
  }
}

/// Calls round(from, to, key, first) for each parameter's range.
template <class Round>
void for_each_run(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step,
    const Round& round) {
  const at::NoGradGuard no_grad;
  to.copy_(from);  // padding between parameters, NaN and Inf
  for (const Segment& segment : layout) {
    if (segment.count > 0) {
      round(
          from.narrow(0, segment.offset, segment.count),
          to.narrow(0, segment.offset, segment.count),
          key_of(segment, seed, step),
          segment.begin);
    }
  }
}

}  // namespace

void round_stochastically_by_tensors(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step) {
  for_each_run(from, to, layout, seed, step, round_by_tensors);
}

void round_stochastically(
    const at::Tensor& from,
    const at::Tensor& to,
    const std::vector<Segment>& layout,
    uint64_t seed,
    int64_t step) {
  if (!ops::has_host_loops(from)) {
    round_stochastically_by_tensors(from, to, layout, seed, step);
    return;
  }
  for_each_run(
      from,
      to,
      layout,
      seed,
      step,
      [](const at::Tensor& part, const at::Tensor& out, uint64_t key, int64_t first) {
        round_on_cpu(
            part.const_data_ptr<float>(),
            static_cast<uint16_t*>(out.mutable_data_ptr()),
            part.numel(),
            key,
            static_cast<uint64_t>(first));
      });
}

}  // namespace lockstep::optim
