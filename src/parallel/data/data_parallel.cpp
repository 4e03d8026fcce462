#include "parallel/data/data_parallel.h"

#include <algorithm>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"
#include "base/format.h"
#include "optim/gradient_norm.h"

namespace lockstep::parallel {
namespace {

constexpr double kMegabyte = 1024.0 * 1024.0;  // DDP's megabyte

class GradientWritten : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientWritten(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { call_(); }

 private:
  std::function<void()> call_;
};

}  // namespace

DataParallel::DataParallel(
    comm::Communicator& group,
    const std::vector<ParameterUnit>& units,
    const DataParallelOptions& options)
    : group_(group),
      options_(options) {
  const auto bytes = static_cast<int64_t>(options.bucket_megabytes * kMegabyte);
  buckets_ = make_buckets(units, bytes, options.gradient_type);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    group_.broadcast(buckets_[b].values, 0).wait();
    for (size_t e = 0; e < buckets_[b].entries.size(); ++e) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          buckets_[b].entries[e].parameter,
          std::make_unique<GradientWritten>([this, b, e] { gradient_written(b, e); }));
    }
  }
}

DataParallel::~DataParallel() {
  for (Bucket& bucket : buckets_) {
    for (Bucket::Entry& entry : bucket.entries) {
      torch::autograd::impl::set_post_acc_grad_hooks(entry.parameter, nullptr);
    }
  }
}

void DataParallel::begin_step() {
  overlapped_ = 0;
  next_reduction_ = 0;
  for (Bucket& bucket : buckets_) {
    for (Bucket::Entry& entry : bucket.entries) {
      entry.written = false;
    }
  }
}

void DataParallel::begin_micro_batch(bool last) {
  last_micro_batch_ = last;
  in_backward_ = true;
  for (Bucket& bucket : buckets_) {
    bucket.complete = 0;
    for (Bucket::Entry& entry : bucket.entries) {
      entry.seen = false;
    }
  }
}

void DataParallel::gradient_written(size_t bucket_index, size_t entry_index) {
  Bucket& bucket = buckets_[bucket_index];
  Bucket::Entry& entry = bucket.entries[entry_index];
  const Tensor gradient = entry.parameter.grad();
  if (!gradient.defined()) {
    return;  // the hook fires on undefined gradients too
  }
  if (entry.seen || !in_backward_) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("{} got two gradients in one backward pass", entry.name),
        "call backward() once a micro-batch, between begin_micro_batch and end_micro_batch");
  }
  const Tensor sum = bucket.gradient.narrow(0, entry.offset, entry.count);
  if (entry.written) {
    sum.add_(gradient.reshape({-1}));
  } else {
    sum.copy_(gradient.reshape({-1}));
  }
  entry.parameter.mutable_grad().reset();
  entry.written = entry.seen = true;
  ++bucket.complete;
  if (last_micro_batch_) {
    start_reductions();
  }
}

void DataParallel::start_reductions() {
  while (next_reduction_ < buckets_.size()) {
    Bucket& bucket = buckets_[next_reduction_];
    if (in_backward_ && bucket.complete < bucket.entries.size()) {
      return;
    }
    bucket.reduction = group_.all_reduce(bucket.gradient);
    ++next_reduction_;
    overlapped_ += in_backward_ && next_reduction_ < buckets_.size() ? 1 : 0;
  }
}

void DataParallel::end_micro_batch() {
  in_backward_ = false;
  std::vector<std::string> unused;
  for (Bucket& bucket : buckets_) {
    for (Bucket::Entry& entry : bucket.entries) {
      if (!entry.seen && !options_.find_unused_parameters) {
        unused.push_back(entry.name);
      }
      if (last_micro_batch_ && !entry.written) {
        bucket.gradient.narrow(0, entry.offset, entry.count).zero_();
      }
    }
  }
  if (!unused.empty()) {
    const size_t shown = std::min<size_t>(unused.size(), 10);
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} parameters got no gradient on rank {}: {}{}",
            unused.size(),
            group_.rank(),
            fmt::join(unused.begin(), unused.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
            shown < unused.size() ? ", ..." : ""),
        "use them in the loss, freeze them, or set training.ddp_find_unused_parameters=true");
  }
  if (last_micro_batch_) {
    start_reductions();
  }
}

void DataParallel::finish() {
  for (Bucket& bucket : buckets_) {
    bucket.reduction.wait();
  }
}

void DataParallel::parameters_changed() {
  for (Bucket& bucket : buckets_) {
    for (Bucket::Entry& entry : bucket.entries) {
      torch::autograd::impl::bump_version(entry.parameter);
    }
  }
}

std::optional<std::string> DataParallel::first_non_finite() const {
  for (const Bucket& bucket : buckets_) {
    const auto index = optim::first_non_finite(bucket.gradient);
    if (!index) {
      continue;
    }
    for (const Bucket::Entry& entry : bucket.entries) {
      if (*index >= entry.offset && *index < entry.offset + entry.count) {
        return entry.name;
      }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::parallel
