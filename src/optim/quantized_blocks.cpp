#include "optim/quantized_blocks.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/cpu/host_loops.h"
#include "ops/host_copies.h"

namespace lockstep::optim {
namespace {

/// Numbers of a map on a device, copied there once.
at::Tensor on_device(std::span<const float> numbers, c10::Device device) {
  static std::mutex mutex;
  // Never destroyed: a device may be gone by then.
  static auto& copies = *new std::map<std::pair<const float*, std::string>, at::Tensor>;
  const std::scoped_lock lock(mutex);
  at::Tensor& copy = copies[{numbers.data(), device.str()}];
  if (!copy.defined()) {
    copy = ops::to_device(at::tensor(at::ArrayRef<float>(numbers.data(), numbers.size())), device);
  }
  return copy;
}

/// Calls visit(begin, count, blocks) for the whole blocks, and for what is left behind them.
template <class Visit>
void visit_whole_and_rest(int64_t count, const Visit& visit) {
  const int64_t whole = count / kQuantizedBlock * kQuantizedBlock;
  if (whole > 0) {
    visit(int64_t{0}, whole, whole / kQuantizedBlock);
  }
  if (whole < count) {
    visit(whole, count - whole, int64_t{1});
  }
}

}  // namespace

void widen_blocks_by_tensors(
    const DynamicMap& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& out) {
  const at::Tensor values = on_device(map.values(), codes.device());
  visit_whole_and_rest(codes.numel(), [&](int64_t begin, int64_t count, int64_t blocks) {
    const at::Tensor wide =
        values.index_select(0, codes.narrow(0, begin, count).to(at::kInt)).view({blocks, -1});
    at::Tensor to = out.narrow(0, begin, count).view({blocks, -1});
    at::mul_out(to, wide, scales.narrow(0, begin / kQuantizedBlock, blocks).unsqueeze(1));
  });
}

void round_blocks_by_tensors(
    const DynamicMap& map,
    const at::Tensor& values,
    const at::Tensor& codes,
    const at::Tensor& scales) {
  const at::Tensor middles =
      on_device(std::span(map.middles()).first(map.middles().size() - 1), values.device());
  visit_whole_and_rest(values.numel(), [&](int64_t begin, int64_t count, int64_t blocks) {
    const at::Tensor from = values.narrow(0, begin, count).view({blocks, -1});
    const at::Tensor scale = from.abs().amax(1, /*keepdim=*/true);
    const at::Tensor inverse = at::where(scale > 0, scale.reciprocal(), at::zeros_like(scale));
    const at::Tensor parts = (from * inverse).clamp_(-1, 1);
    codes.narrow(0, begin, count)
        .copy_(at::bucketize(parts, middles, /*out_int32=*/true).view({-1}));
    scales.narrow(0, begin / kQuantizedBlock, blocks).copy_(scale.view({-1}));
  });
}

void widen_blocks(
    const DynamicMap& map,
    const at::Tensor& codes,
    const at::Tensor& scales,
    const at::Tensor& out) {
  if (!ops::has_host_loops(codes)) {
    widen_blocks_by_tensors(map, codes, scales, out);
    return;
  }
  const auto* code = codes.const_data_ptr<uint8_t>();
  const auto* scale = scales.const_data_ptr<float>();
  auto* value = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < codes.numel(); ++i) {
    value[i] = map.values()[code[i]] * scale[i / kQuantizedBlock];
  }
}

void round_blocks(
    const DynamicMap& map,
    const at::Tensor& values,
    const at::Tensor& codes,
    const at::Tensor& scales) {
  if (!ops::has_host_loops(values)) {
    round_blocks_by_tensors(map, values, codes, scales);
    return;
  }
  const auto* value = values.const_data_ptr<float>();
  auto* code = codes.mutable_data_ptr<uint8_t>();
  auto* scale = scales.mutable_data_ptr<float>();
  const int64_t blocks = (codes.numel() + kQuantizedBlock - 1) / kQuantizedBlock;
  at::parallel_for(0, blocks, 8, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kQuantizedBlock;
      quantize_block(
          map,
          value + begin,
          std::min(kQuantizedBlock, codes.numel() - begin),
          code + begin,
          scale[block]);
    }
  });
}

}  // namespace lockstep::optim
