// Token loss with the AVX-512 loops of loss_head_kernel.h.
#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/checked_products.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/jobs.h"
#include "ops/cpu/loss_head_kernel.h"
#include "ops/cpu/machine.h"
#include "ops/token_loss_run.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kPanel = 64;

const kernel::LossHeadLoops* head_loops_for(const Tensor& hidden) {
#if defined(__x86_64__)
  const MatrixUnit unit = matrix_unit();
  if (!has_host_loops(hidden) || unit < MatrixUnit::kAvx512) {
    return nullptr;
  }
  if (hidden.scalar_type() == at::kFloat) {
    return &kernel::kLossHeadFloat;
  }
  if (hidden.scalar_type() == at::kBFloat16 && unit >= MatrixUnit::kBfloat16) {
    return unit >= MatrixUnit::kAmx ? &kernel::kLossHeadAmx : &kernel::kLossHeadBfloat16;
  }
#else
  (void)hidden;
#endif
  return nullptr;
}

int64_t rounded_up(int64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

/// Calls `function(part, first, last)` in parallel for ranges that cover [0, count), with at most
/// one range per thread.
template <class Function>
void in_parts(int64_t count, int64_t threads, const Function& function) {
  const int64_t parts = std::max<int64_t>(1, std::min(count, threads));
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      function(part, count * part / parts, count * (part + 1) / parts);
    }
  });
}

class VectorHeadRun final : public TokenLossRun {
 public:
  VectorHeadRun(const kernel::LossHeadLoops& loops, const RunInputs& inputs)
      : inputs_(inputs),
        loops_(loops),
        shape_(loops.shape(inputs.hidden.size(0), inputs.hidden.size(1), inputs.weight.size(0))),
        threads_(at::get_num_threads()) {
    const int64_t padded = shape_.panels * kPanel, floats = rounded_up(padded * 4);
    const int64_t gradient = inputs.needs_gradient ? shape_.gradient_bytes : 0;
    thread_bytes_ = rounded_up(shape_.thread_bytes);
    // A single block, so that a caching allocator returns the same memory in every step.
    memory_ = at::empty(
        {rounded_up(shape_.kept_bytes) + rounded_up(shape_.panel_bytes) + rounded_up(gradient) +
         rounded_up(shape_.reference_bytes) + 5 * floats + threads_ * thread_bytes_ + kLine},
        at::kByte);
    auto* memory = memory_.mutable_data_ptr<uint8_t>();
    memory += kLine - reinterpret_cast<uintptr_t>(memory) % kLine;
    const auto take = [&](int64_t bytes) {
      return std::exchange(memory, memory + rounded_up(bytes));
    };
    run_.kept = take(shape_.kept_bytes);
    run_.panel = take(shape_.panel_bytes);
    run_.gradient = gradient > 0 ? reinterpret_cast<float*>(take(gradient)) : nullptr;
    run_.references = reinterpret_cast<float*>(take(shape_.reference_bytes));
    run_.maximum = reinterpret_cast<float*>(take(floats));
    run_.total = reinterpret_cast<float*>(take(floats));
    run_.target_logit = reinterpret_cast<float*>(take(floats));
    factor_ = reinterpret_cast<float*>(take(floats));
    share_ = reinterpret_cast<float*>(take(floats));
    run_.factor = factor_;
    run_.share = share_;
    thread_memory_ = memory;
    target_.assign(static_cast<size_t>(padded), -1);
    const auto* target = inputs.target.const_data_ptr<int64_t>();
    std::copy(target, target + shape_.rows, target_.begin());
    run_.target = target_.data();
    run_.hidden = inputs.hidden.const_data_ptr();
    run_.weight = inputs.weight.const_data_ptr();
    run_.softcap = static_cast<float>(inputs.softcap);
  }

  RowStatistics statistics() override {
    in_parts(shape_.panels, threads_, [&](int64_t part, int64_t first, int64_t last) {
      loops_.forward(shape_, run_, first, last, thread_memory(part));
    });
    return {rows_of(run_.maximum), rows_of(run_.total), rows_of(run_.target_logit)};
  }

  void gradients(const RowStatistics& whole, const RowGradients& gradients) override {
    set_factors(whole, gradients);
    if (gradients.hidden.defined()) {
      in_parts(shape_.panels, threads_, [&](int64_t, int64_t first, int64_t last) {
        loops_.hidden_gradient(shape_, run_, first, last, gradients.hidden.data_ptr());
      });
    }
    if (gradients.weight != nullptr) {
      weight_gradient(*gradients.weight);
    }
  }

 private:
  uint8_t* thread_memory(int64_t part) const { return thread_memory_ + part * thread_bytes_; }

  Tensor rows_of(const float* values) const {
    Tensor copy = at::empty({shape_.rows}, at::kFloat);
    std::copy(values, values + shape_.rows, copy.mutable_data_ptr<float>());
    return copy;
  }

  /// Sets the factor of the exponentials, which are relative to the maximum of this shard.
  void set_factors(const RowStatistics& whole, const RowGradients& gradients) {
    const Tensor own = rows_of(run_.maximum);
    const Tensor factor =
        gradients.softmax_factor / whole.total * (own - whole.maximum).exp();  // [n]
    const Tensor log_sum = whole.total.log().add_(whole.maximum);
    Tensor share =
        gradients.target_factor - gradients.softmax_factor * (whole.target - log_sum).exp();
    if (inputs_.softcap > 0) {
      share = share * (1 - (rows_of(run_.target_logit) / inputs_.softcap).square());
    }
    const auto put = [&](const Tensor& values, float* to) {
      const Tensor dense = values.contiguous();
      const auto* from = dense.const_data_ptr<float>();
      std::copy(from, from + shape_.rows, to);
      std::fill(to + shape_.rows, to + shape_.panels * kPanel, 0.0F);
    };
    put(factor, factor_);
    put(share, share_);
  }

  void weight_gradient(WeightGradient& weight) {
    std::vector<int64_t> order;  // rows whose target is in this shard, sorted by target
    for (int64_t row = 0; row < shape_.rows; ++row) {
      const int64_t target = target_[static_cast<size_t>(row)];
      if (target >= 0 && target < shape_.vocabulary) {
        order.push_back(row);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return target_[static_cast<size_t>(a)] < target_[static_cast<size_t>(b)];
    });
    kernel::WeightGradientTarget target;
    target.order = order.data();
    target.ordered = static_cast<int64_t>(order.size());
    target.is_first = !weight.sum.defined();
    const bool is_float = inputs_.weight.scalar_type() == at::kFloat;
    if (!weight.sum.defined() && (is_float || !weight.is_last)) {
      weight.sum =
          is_float ? weight.room(inputs_.weight) : at::empty(inputs_.weight.sizes(), at::kFloat);
    }
    if (weight.is_last) {
      weight.result = is_float ? weight.sum : weight.room(inputs_.weight);
    }
    target.sum = weight.sum.defined() ? weight.sum.mutable_data_ptr<float>() : nullptr;
    target.result = weight.is_last && !is_float ? weight.result.mutable_data_ptr() : nullptr;
    in_parts(shape_.pieces, threads_, [&](int64_t part, int64_t first, int64_t last) {
      loops_.weight_gradient(shape_, run_, target, first, last, thread_memory(part));
    });
  }

  RunInputs inputs_;
  Tensor memory_;
  const kernel::LossHeadLoops& loops_;
  kernel::LossHeadShape shape_;
  int64_t threads_;
  int64_t thread_bytes_ = 0;
  kernel::LossHeadRun run_;
  std::vector<int64_t> target_;
  float* factor_ = nullptr;
  float* share_ = nullptr;
  uint8_t* thread_memory_ = nullptr;
};

}  // namespace

bool has_vector_run(const Tensor& hidden) {
  // These loops do not store products that could be verified.
  return head_loops_for(hidden) != nullptr && !checks_products();
}

std::unique_ptr<TokenLossRun> make_vector_run(const RunInputs& inputs) {
  const auto* loops = head_loops_for(inputs.hidden);
  const bool is_empty = inputs.hidden.numel() == 0 || inputs.weight.numel() == 0;
  return !has_vector_run(inputs.hidden) || is_empty
             ? nullptr
             : std::make_unique<VectorHeadRun>(*loops, inputs);
}

}  // namespace lockstep::ops
