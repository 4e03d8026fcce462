// AdamW with block-wise quantized 8-bit moments.
#include "optim/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/adamw.h"
#include "ops/cpu/host_loops.h"
#include "ops/cuda_loops.h"
#include "ops/host_copies.h"
#include "optim/dynamic_map.h"
#include "optim/quantized_blocks.h"

namespace lockstep::optim {
namespace {

constexpr int64_t kSmallest = 4096;  // smaller parameters have float32 moments

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

/// Moments of a segment: float32, or codes with one scale per block.
struct QuantizedMoments {
  at::Tensor exp_avg, exp_avg_sq;                // [n] float32 or uint8
  at::Tensor exp_avg_absmax, exp_avg_sq_absmax;  // [n / 256] float32, or undefined
  int64_t first_scale = -1;  // if sharded: index of the scales of its first block in the scales of
                             // the step; -1: not sharded
  std::shared_ptr<const BlockPlaces> places = nullptr;  // used by ATen on a device; null: CPU loops
  bool is_quantized() const { return exp_avg_absmax.defined(); }
  bool is_part() const { return first_scale >= 0; }
};

/// Returns true if the parameter is sharded. Its blocks are then those of the whole parameter and
/// may extend to other ranks.
bool is_part(const Segment& segment) {
  return !segment.whole_shape.empty() && !segment.cut.is_whole();
}

const std::vector<int64_t>& shape_of_blocks(const Segment& segment) {
  return is_part(segment) ? segment.whole_shape : segment.shape;
}

/// Divides the elements [begin, begin + count) of a shard by blocks. Calls visit(at, block, count)
/// for `count` elements that start at `at`, relative to `begin`, and belong to `block` of the whole
/// parameter.
template <class Visit>
void visit_blocks(const Segment& segment, int64_t begin, int64_t count, const Visit& visit) {
  const int64_t first = segment.begin + begin;
  mesh::visit_runs(
      segment.cut,
      segment.whole_shape,
      first,
      first + count,
      [&](int64_t local, int64_t whole, int64_t run) {
        for (int64_t done = 0; done < run;) {
          const int64_t block = (whole + done) / kQuantizedBlock;
          const int64_t some = std::min(run - done, (block + 1) * kQuantizedBlock - whole - done);
          visit(local + done - first, block, some);
          done += some;
        }
      });
}

/// Returns the values and midpoints of both maps, [4, 256].
at::Tensor maps_of_kernel(c10::Device device) {
  std::vector<float> numbers;
  for (const DynamicMap* map : {&DynamicMap::of_signed(), &DynamicMap::of_unsigned()}) {
    numbers.insert(numbers.end(), map->values().begin(), map->values().end());
    numbers.insert(numbers.end(), map->middles().begin(), map->middles().end());
  }
  return at::tensor(at::ArrayRef<float>(numbers)).view({4, -1}).to(device);
}

class AdamW8bit : public Optimizer {
 public:
  explicit AdamW8bit(const OptimizerOptions& options) : Optimizer(options) {}

  int64_t alignment() const override { return kQuantizedBlock; }
  double state_bytes_per_element() const override { return 2.0 + 8.0 / kQuantizedBlock; }
  bool looks_ahead() const override { return blocks_of_parts_ > 0; }

  void visit_state(int64_t index, const StateVisitor& visit) override {
    const Shard& shard = this->shard(index);
    const std::vector<QuantizedMoments>& moments = moments_.at(static_cast<size_t>(index));
    for (size_t i = 0; i < moments.size(); ++i) {
      const Segment& segment = shard.layout[i];
      const QuantizedMoments& state = moments[i];
      visit({"exp_avg", segment.parameter, segment.shape, segment.begin, state.exp_avg});
      visit({"exp_avg_sq", segment.parameter, segment.shape, segment.begin, state.exp_avg_sq});
      if (state.is_quantized()) {
        const std::vector<int64_t> shape{blocks_of(elements_of(shape_of_blocks(segment)))};
        const bool all = is_part(segment);
        const int64_t begin = all ? 0 : segment.begin / kQuantizedBlock;
        visit({"exp_avg.absmax", segment.parameter, shape, begin, state.exp_avg_absmax, all});
        visit({"exp_avg_sq.absmax", segment.parameter, shape, begin, state.exp_avg_sq_absmax, all});
      }
    }
  }

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    const bool has_loops = ops::has_host_loops(shard.parameter);
    const c10::Device device = shard.parameter.device();
    if (!has_loops && maps_.empty()) {
      maps_.emplace_back(DynamicMap::of_signed(), device);
      maps_.emplace_back(DynamicMap::of_unsigned(), device);
      kernel_maps_ = maps_of_kernel(device);
    }
    const auto zeros = [&](int64_t count) { return at::zeros({count}, at::device(device)); };
    std::vector<QuantizedMoments> all;
    for (const Segment& segment : shard.layout) {
      if (!is_part(segment) && segment.begin % kQuantizedBlock != 0 && segment.count > 0) {
        throw Error(
            ErrorKind::kInternal, fmt::format("shard {} starts within a block of 256", shard.name));
      }
      const int64_t elements = elements_of(shape_of_blocks(segment));
      if (elements < kSmallest) {
        all.push_back({zeros(segment.count), zeros(segment.count), {}, {}});
        continue;
      }
      const auto zero = [&](const DynamicMap& map) {
        return at::full(
            {segment.count},
            static_cast<int64_t>(map.nearest(0)),
            at::dtype(at::kByte).device(device));
      };
      const int64_t blocks = blocks_of(is_part(segment) ? elements : segment.count);
      all.push_back(
          {zero(DynamicMap::of_signed()),
           zero(DynamicMap::of_unsigned()),
           zeros(blocks),
           zeros(blocks)});
      if (!has_loops) {
        all.back().places = std::make_shared<const BlockPlaces>(segment, is_part(segment), device);
      }
      if (is_part(segment)) {
        all.back().first_scale = 2 * blocks_of_parts_;
        blocks_of_parts_ += blocks;
      }
    }
    moments_.push_back(std::move(all));
  }

  /// Computes this step's scales of sharded parameters: the largest magnitudes of the new moments
  /// in each block over all ranks.
  void prepare(double gradient_scale) override {
    if (blocks_of_parts_ == 0) {
      return;
    }
    const at::NoGradGuard no_grad;
    scales_ = at::zeros({2 * blocks_of_parts_}, at::device(shard(0).parameter.device()));
    for (int64_t index = 0; index < size(); ++index) {
      const Shard& shard = this->shard(index);
      const std::vector<QuantizedMoments>& moments = moments_.at(static_cast<size_t>(index));
      for (size_t i = 0; i < moments.size(); ++i) {
        if (moments[i].is_part()) {
          const Segment& segment = shard.layout[i];
          ops::AdamWBuffers gradient_alone;
          gradient_alone.gradient = shard.gradient.narrow(0, segment.offset, segment.count);
          const auto scales = scales_of(moments[i]);
          update_part(
              segment,
              gradient_alone,
              moments[i],
              step_of(segment, 0, gradient_scale),
              [&](int64_t begin, const at::Tensor& m, const at::Tensor& v) {
                find_largest(segment, moments[i], begin, m, scales.first);
                find_largest(segment, moments[i], begin, v, scales.second);
              });
        }
      }
    }
    reduce_over_shards(scales_, ShardReduction::kLargest);
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const std::vector<QuantizedMoments>& moments = moments_.at(static_cast<size_t>(index));
    for (size_t i = 0; i < moments.size(); ++i) {
      const Segment& segment = shard.layout[i];
      const ops::AdamWStep step = step_of(segment, learning_rate, gradient_scale);
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
      if (moments[i].is_part()) {
        update_and_round_part(segment, buffers, moments[i], step);
      } else if (moments[i].places != nullptr) {
        update_and_round_whole(segment, buffers, moments[i], step);
      } else if (moments[i].is_quantized()) {
        update_blocks(buffers, moments[i], step);
      } else {
        ops::adamw_step(buffers, step);
      }
    }
  }

 private:
  ops::AdamWStep step_of(
      const Segment& segment, double learning_rate, double gradient_scale) const {
    return {
        .learning_rate = learning_rate * segment.rule.learning_rate,
        .beta1 = options().adam_beta1,
        .beta2 = options().adam_beta2,
        .epsilon = options().adam_epsilon,
        .weight_decay = segment.rule.weight_decay.value_or(options().weight_decay),
        .gradient_scale = gradient_scale,
        .step = steps()};
  }

  /// Returns this step's scales of a shard, for the first and the second moments.
  std::pair<at::Tensor, at::Tensor> scales_of(const QuantizedMoments& state) const {
    const int64_t blocks = state.exp_avg_absmax.numel();
    return {
        scales_.narrow(0, state.first_scale, blocks),
        scales_.narrow(0, state.first_scale + blocks, blocks)};
  }

  /// Processes the elements in chunks: dequantizes the moments, applies the float32 update and
  /// calls `visit(begin, m, v)`. If the parameter is undefined, only updates the moments.
  template <class Visit>
  void update_part(
      const Segment& segment,
      const ops::AdamWBuffers& all,
      const QuantizedMoments& state,
      const ops::AdamWStep& step,
      const Visit& visit) const {
    const int64_t count = all.gradient.numel(), longest = state.places ? kDeviceRun : kRun;
    const at::Tensor m = at::empty({std::min(longest, count)}, at::device(all.gradient.device())),
                     v = at::empty_like(m), none = at::zeros_like(m);
    for (int64_t begin = 0; begin < count; begin += longest) {
      const int64_t run = std::min(longest, count - begin);
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(0, begin, run) : tensor;
      };
      const ops::AdamWBuffers buffers{
          .parameter = all.parameter.defined() ? part(all.parameter) : none.narrow(0, 0, run),
          .master = part(all.master),
          .gradient = part(all.gradient),
          .exp_avg = m.narrow(0, 0, run),
          .exp_avg_sq = v.narrow(0, 0, run)};
      const auto widen_by = [&](const DynamicMap& map,
                                const at::Tensor& codes,
                                const at::Tensor& scales,
                                const at::Tensor& out) {
        if (state.places != nullptr) {
          const at::Tensor blocks = state.places->blocks(begin, run);
          widen_blocks(on_device(map), part(codes), scales, blocks, out);
          return;
        }
        const auto* code = codes.const_data_ptr<uint8_t>() + begin;
        const auto* scale = scales.const_data_ptr<float>();
        auto* value = out.mutable_data_ptr<float>();
        visit_blocks(segment, begin, run, [&](int64_t at, int64_t block, int64_t some) {
          for (int64_t i = at; i < at + some; ++i) {
            value[i] = map.values()[code[i]] * scale[block];
          }
        });
      };
      widen_by(DynamicMap::of_signed(), state.exp_avg, state.exp_avg_absmax, buffers.exp_avg);
      widen_by(
          DynamicMap::of_unsigned(), state.exp_avg_sq, state.exp_avg_sq_absmax, buffers.exp_avg_sq);
      ops::adamw_step(buffers, step);
      visit(begin, buffers.exp_avg, buffers.exp_avg_sq);
    }
  }

  static void find_largest(
      const Segment& segment,
      const QuantizedMoments& state,
      int64_t begin,
      const at::Tensor& values,
      const at::Tensor& scales) {
    if (state.places != nullptr) {
      take_largest(values, state.places->blocks(begin, values.numel()), scales);
      return;
    }
    const auto* value = values.const_data_ptr<float>();
    auto* scale = scales.mutable_data_ptr<float>();
    visit_blocks(segment, begin, values.numel(), [&](int64_t at, int64_t block, int64_t some) {
      scale[block] = std::max(scale[block], largest_magnitude(value + at, some));
    });
  }

  void update_and_round_part(
      const Segment& segment,
      const ops::AdamWBuffers& all,
      const QuantizedMoments& state,
      const ops::AdamWStep& step) const {
    const std::pair<at::Tensor, at::Tensor> scales = scales_of(state);
    const auto round_by = [&](const DynamicMap& map,
                              int64_t begin,
                              const at::Tensor& values,
                              const at::Tensor& of_blocks,
                              const at::Tensor& codes) {
      if (state.places != nullptr) {
        const int64_t count = values.numel();
        const at::Tensor blocks = state.places->blocks(begin, count);
        round_blocks(on_device(map), values, of_blocks, blocks, codes.narrow(0, begin, count));
        return;
      }
      const auto* value = values.const_data_ptr<float>();
      const auto* scale = of_blocks.const_data_ptr<float>();
      auto* code = codes.mutable_data_ptr<uint8_t>() + begin;
      visit_blocks(segment, begin, values.numel(), [&](int64_t at, int64_t block, int64_t some) {
        quantize_by(map, value + at, some, scale[block], code + at);
      });
    };
    update_part(
        segment, all, state, step, [&](int64_t begin, const at::Tensor& m, const at::Tensor& v) {
          round_by(DynamicMap::of_signed(), begin, m, scales.first, state.exp_avg);
          round_by(DynamicMap::of_unsigned(), begin, v, scales.second, state.exp_avg_sq);
        });
    state.exp_avg_absmax.copy_(scales.first);
    state.exp_avg_sq_absmax.copy_(scales.second);
  }

  /// Device update of a parameter that is not sharded, so that all its blocks are on this rank.
  void update_and_round_whole(
      const Segment& segment,
      const ops::AdamWBuffers& all,
      const QuantizedMoments& state,
      const ops::AdamWStep& step) const {
    const c10::Device device = all.parameter.device();
    if (device.is_cuda() && ops::cuda_loops().adamw_8bit != nullptr) {
      if (segment.count > 0) {
        ops::cuda_loops().adamw_8bit(
            {all.parameter,
             all.master,
             all.gradient,
             state.exp_avg,
             state.exp_avg_sq,
             state.exp_avg_absmax,
             state.exp_avg_sq_absmax,
             kernel_maps_},
            ops::to_device(ops::adamw_numbers(step), device));
      }
      return;
    }
    const auto round_by = [&](const DynamicMap& map,
                              int64_t begin,
                              const at::Tensor& values,
                              const at::Tensor& scales,
                              const at::Tensor& codes) {
      const int64_t count = values.numel();
      const at::Tensor blocks = state.places->blocks(begin, count);
      scales.narrow(0, begin / kQuantizedBlock, blocks_of(count)).zero_();
      take_largest(values, blocks, scales);
      round_blocks(on_device(map), values, scales, blocks, codes.narrow(0, begin, count));
    };
    update_part(
        segment, all, state, step, [&](int64_t begin, const at::Tensor& m, const at::Tensor& v) {
          round_by(DynamicMap::of_signed(), begin, m, state.exp_avg_absmax, state.exp_avg);
          round_by(DynamicMap::of_unsigned(), begin, v, state.exp_avg_sq_absmax, state.exp_avg_sq);
        });
  }

  const MapTensors& on_device(const DynamicMap& map) const {
    return maps_.at(&map == &DynamicMap::of_signed() ? 0 : 1);
  }

  /// Dequantizes, updates in float32 and quantizes a few blocks at a time.
  static void update_blocks(
      const ops::AdamWBuffers& all, const QuantizedMoments& state, const ops::AdamWStep& step) {
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

  static constexpr int64_t kRun = 64 * kQuantizedBlock;          // number of elements that are
                                                                 // dequantized at a time
  static constexpr int64_t kDeviceRun = 4096 * kQuantizedBlock;  // same on a device

  std::vector<std::vector<QuantizedMoments>> moments_;  // indexed by shard, then by segment
  std::vector<MapTensors> maps_;                        // signed and unsigned; empty: CPU loops
  at::Tensor kernel_maps_;                              // both maps in the kernel's layout
  int64_t blocks_of_parts_ = 0;                         // number of blocks of all sharded
                                                        // parameters
  at::Tensor scales_;  // [2 blocks_of_parts_]: scales of this step, by shard
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw_8bit(const OptimizerOptions& options) {
  return std::make_unique<AdamW8bit>(options);
}

}  // namespace lockstep::optim
