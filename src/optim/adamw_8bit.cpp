#include "optim/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/adamw.h"
#include "optim/dynamic_map.h"

namespace lockstep::optim {
namespace {

constexpr int64_t kSmallest = 4096;  // elements of a parameter whose moments are quantized

int64_t blocks_of(int64_t elements) {
  return (elements + kQuantizedBlock - 1) / kQuantizedBlock;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    elements *= dim;
  }
  return elements;
}

/// The moments of a segment: float32, or codes with a scale a block.
struct QuantizedMoments {
  at::Tensor exp_avg, exp_avg_sq;                // [n] float32 or uint8
  at::Tensor exp_avg_absmax, exp_avg_sq_absmax;  // [n / 256] float32, or undefined
  bool is_quantized() const { return exp_avg_absmax.defined(); }
};

class AdamW8bit : public Optimizer {
 public:
  explicit AdamW8bit(const OptimizerOptions& options) : Optimizer(options) {}

  int64_t alignment() const override { return kQuantizedBlock; }
  double state_bytes_per_element() const override { return 2.0 + 8.0 / kQuantizedBlock; }

  void visit_state(int64_t index, const StateVisitor& visit) override {
    const Shard& shard = this->shard(index);
    const std::vector<QuantizedMoments>& moments = moments_.at(static_cast<size_t>(index));
    for (size_t i = 0; i < moments.size(); ++i) {
      const Segment& segment = shard.layout[i];
      const QuantizedMoments& state = moments[i];
      visit({"exp_avg", segment.parameter, segment.shape, segment.begin, state.exp_avg});
      visit({"exp_avg_sq", segment.parameter, segment.shape, segment.begin, state.exp_avg_sq});
      if (state.is_quantized()) {
        const std::vector<int64_t> shape{blocks_of(elements_of(segment.shape))};
        const int64_t begin = segment.begin / kQuantizedBlock;
        visit({"exp_avg.absmax", segment.parameter, shape, begin, state.exp_avg_absmax});
        visit({"exp_avg_sq.absmax", segment.parameter, shape, begin, state.exp_avg_sq_absmax});
      }
    }
  }

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    if (!shard.parameter.is_cpu()) {
      throw Error(
          ErrorKind::kConfig,
          "the 8-bit AdamW runs on CPUs alone",
          "use training.optim=adamw_torch_fused, or parallel.offload_optimizer.device=cpu");
    }
    std::vector<QuantizedMoments> all;
    for (const Segment& segment : shard.layout) {
      if (segment.begin % kQuantizedBlock != 0 && segment.count > 0) {
        throw Error(
            ErrorKind::kInternal,
            fmt::format("the shard {} begins within a block of 256", shard.name));
      }
      if (elements_of(segment.shape) < kSmallest) {
        all.push_back({at::zeros({segment.count}), at::zeros({segment.count}), {}, {}});
        continue;
      }
      const auto zero = [&](const DynamicMap& map) {
        return at::full({segment.count}, static_cast<int64_t>(map.nearest(0)), at::kByte);
      };
      const int64_t blocks = blocks_of(segment.count);
      all.push_back(
          {zero(DynamicMap::of_signed()),
           zero(DynamicMap::of_unsigned()),
           at::zeros({blocks}),
           at::zeros({blocks})});
    }
    moments_.push_back(std::move(all));
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const std::vector<QuantizedMoments>& moments = moments_.at(static_cast<size_t>(index));
    for (size_t i = 0; i < moments.size(); ++i) {
      const Segment& segment = shard.layout[i];
      ops::AdamWStep step{
          .learning_rate = learning_rate * segment.rule.learning_rate,
          .beta1 = options().adam_beta1,
          .beta2 = options().adam_beta2,
          .epsilon = options().adam_epsilon,
          .weight_decay = segment.rule.weight_decay.value_or(options().weight_decay),
          .gradient_scale = gradient_scale,
          .step = steps()};
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.narrow(0, segment.offset, segment.count);
      };
      const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
      const ops::AdamWBuffers buffers{
          .parameter = part(shard.parameter),
          .master = has_master ? part(shard.master) : at::Tensor(),
          .gradient = part(shard.gradient),
          .exp_avg = moments[i].exp_avg,
          .exp_avg_sq = moments[i].exp_avg_sq};
      if (moments[i].is_quantized()) {
        update_blocks(buffers, moments[i], step);
      } else {
        ops::adamw_step(buffers, step);
      }
    }
  }

 private:
  /// Some blocks at a time are widened, updated by the float32 step, and rounded.
  static void update_blocks(
      const ops::AdamWBuffers& all, const QuantizedMoments& state, const ops::AdamWStep& step) {
    constexpr int64_t kRun = 64 * kQuantizedBlock;
    const int64_t count = all.parameter.numel();
    const at::Tensor m = at::empty({std::min(kRun, count)}), v = at::empty_like(m);
    for (int64_t begin = 0; begin < count; begin += kRun) {
      const int64_t run = std::min(kRun, count - begin);
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(0, begin, run) : tensor;
      };
      const ops::AdamWBuffers buffers{
          .parameter = part(all.parameter),
          .master = part(all.master),
          .gradient = part(all.gradient),
          .exp_avg = m.narrow(0, 0, run),
          .exp_avg_sq = v.narrow(0, 0, run)};
      const int64_t block = begin / kQuantizedBlock;
      widen(DynamicMap::of_signed(), part(state.exp_avg), state.exp_avg_absmax, block, m);
      widen(DynamicMap::of_unsigned(), part(state.exp_avg_sq), state.exp_avg_sq_absmax, block, v);
      ops::adamw_step(buffers, step);
      round(DynamicMap::of_signed(), m, part(state.exp_avg), state.exp_avg_absmax, block);
      round(DynamicMap::of_unsigned(), v, part(state.exp_avg_sq), state.exp_avg_sq_absmax, block);
    }
  }

  static void widen(
      const DynamicMap& map,
      const at::Tensor& codes,
      const at::Tensor& scales,
      int64_t first_block,
      const at::Tensor& out) {
    const auto* code = codes.const_data_ptr<uint8_t>();
    const auto* scale = scales.const_data_ptr<float>() + first_block;
    auto* value = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < codes.numel(); ++i) {
      value[i] = map.values()[code[i]] * scale[i / kQuantizedBlock];
    }
  }

  static void round(
      const DynamicMap& map,
      const at::Tensor& values,
      const at::Tensor& codes,
      const at::Tensor& scales,
      int64_t first_block) {
    const auto* value = values.const_data_ptr<float>();
    auto* code = codes.mutable_data_ptr<uint8_t>();
    auto* scale = scales.mutable_data_ptr<float>() + first_block;
    at::parallel_for(0, blocks_of(codes.numel()), 8, [&](int64_t first, int64_t last) {
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

  std::vector<std::vector<QuantizedMoments>> moments_;  // by shard, then by segment
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw_8bit(const OptimizerOptions& options) {
  return std::make_unique<AdamW8bit>(options);
}

}  // namespace lockstep::optim
