// Accumulates the squares of gradients as the gradients are summed.
#include "parallel/data/grad_norm_accumulator.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include "ops/cpu/host_loops.h"
#include "ops/cuda_loops.h"
#include "ops/square_sums.h"
#include "optim/gradient_norm.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kBlock = int64_t{1} << 16;  // elements per thread; fits into its cache

}  // namespace

GradNormAccumulator::GradNormAccumulator(const FlatUnit& flat, const ShareOfParameter& share)
    : flat_(&flat) {
  if (share) {
    for (const optim::Segment& segment : flat.shard_layout()) {
      runs_.push_back({segment.offset, segment.offset + segment.count, share(segment.parameter)});
    }
  }
}

void GradNormAccumulator::clear() {
  in_host_memory_ = 0;
  on_device_.reset();
}

void GradNormAccumulator::count(int64_t begin, int64_t end) {
  const auto add = [&](int64_t first, int64_t last, double share) {
    if (first >= last) {
      return;
    }
    const Tensor part = flat_->shard_gradient.narrow(0, first, last - first);
    if (ops::has_host_loops(part)) {
      in_host_memory_ += share * optim::squared_norm(part);
      return;
    }
    if (part.is_cuda() && ops::cuda_loops().add_squares != nullptr) {  // one kernel for all runs
      if (!on_device_.defined()) {
        on_device_ = at::zeros({ops::kSquareSums}, part.options().dtype(at::kDouble));
      }
      ops::cuda_loops().add_squares(part, share, on_device_);
      return;
    }
    const Tensor squares = optim::squares_on_device(part) * share;
    on_device_ = on_device_.defined() ? on_device_.add_(squares) : squares;
  };
  if (runs_.empty()) {
    add(begin, end, 1.0);
  }
  for (const Run& run : runs_) {
    add(std::max(begin, run.begin), std::min(end, run.end), run.share);
  }
}

void GradNormAccumulator::add_to(Tensor& sum) const {
  if (on_device_.defined()) {
    sum.add_(on_device_.sum(0, /*keepdim=*/true));
  } else if (in_host_memory_ != 0) {
    sum.add_(in_host_memory_);
  }
}

void write_and_count(
    const Tensor& to,
    const Tensor& from,
    int64_t begin,
    int64_t end,
    Written how,
    const std::function<void(int64_t begin, int64_t end)>& count) {
  const int64_t step =
      count && to.is_cpu() ? kBlock * at::get_num_threads() : std::max<int64_t>(end - begin, 1);
  for (int64_t at = begin; at < end; at += step) {
    const int64_t some = std::min(step, end - at);
    const Tensor part = to.narrow(0, at, some), source = from.narrow(0, at, some);
    how == Written::kAdded ? part.add_(source) : part.copy_(source);
    if (count) {
      count(at, at + some);
    }
  }
}

}  // namespace lockstep::parallel
