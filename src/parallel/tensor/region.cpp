// Collectives at the boundaries of tensor-parallel regions.
#include "parallel/tensor/region.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

/// A collective whose backward pass is another collective.
template <auto Forward, auto Backward>
struct Conjugate : torch::autograd::Function<Conjugate<Forward, Backward>> {
  static Tensor forward(
      torch::autograd::AutogradContext* context, const Tensor& x, const Group& group) {
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return ((*group).*Forward)(x);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const auto group =
        c10::static_intrusive_pointer_cast<TensorGroup>(context->saved_data["group"].toCapsule());
    return {((*group).*Backward)(gradient[0]), Tensor()};
  }
};

/// The entered region and the work to run while its gradient is summed, wrapped for autograd.
struct HeldEntrance : torch::CustomClassHolder {
  Region region;
  std::shared_ptr<DeferredQueue> meanwhile;
};

struct Enter : torch::autograd::Function<Enter> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const c10::intrusive_ptr<HeldEntrance>& entrance) {
    context->saved_data["entrance"] = c10::IValue::make_capsule(entrance);
    const Region& region = entrance->region;
    return region.shards_sequence() ? region.group->gather_sequence(x) : x;
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const auto entrance = c10::static_intrusive_pointer_cast<HeldEntrance>(
        context->saved_data["entrance"].toCapsule());
    const Region& region = entrance->region;
    TensorGroup::Sum sum = region.shards_sequence() ? region.group->start_scatter_sum(gradient[0])
                                                    : region.group->start_sum(gradient[0]);
    if (entrance->meanwhile != nullptr) {
      for (std::function<void()>& work : entrance->meanwhile->take()) {
        std::exchange(work, nullptr)();  // frees the tensors that the closure holds
      }
    }
    sum.pending.wait();
    return {sum.result, Tensor()};
  }
};

using SumForward = Conjugate<&TensorGroup::sum, &TensorGroup::identity>;
using Gather = Conjugate<&TensorGroup::gather_sequence, &TensorGroup::part_of_sequence>;
using Scatter = Conjugate<&TensorGroup::scatter_sum_sequence, &TensorGroup::gather_sequence>;

}  // namespace

TensorGroup::Sum TensorGroup::start_sum(const Tensor& x) const {
  const Tensor from = x.contiguous();
  Tensor y = at::empty_like(from);
  return {y, from, communicator_->sum_into(y, from)};
}

Tensor TensorGroup::sum(const Tensor& x) const {
  Sum sum = start_sum(x);
  sum.pending.wait();
  return sum.result;
}

Tensor TensorGroup::largest(const Tensor& x) const {
  Tensor y = x.clone(at::MemoryFormat::Contiguous);
  communicator_->all_reduce(y, comm::Reduce::kMax).wait();
  return y;
}

Tensor TensorGroup::gather_sequence(const Tensor& x) const {
  Tensor parts = at::empty({size(), x.size(0), x.size(1), x.size(2)}, x.options());
  communicator_->all_gather(parts, x.contiguous()).wait();
  return parts.transpose(0, 1).flatten(1, 2);  // [B, n, T/n, C] -> [B, T, C]
}

Tensor TensorGroup::part_of_sequence(const Tensor& x) const {
  const int64_t part = x.size(1) / size();
  return x.narrow(1, rank() * part, part).contiguous();
}

TensorGroup::Sum TensorGroup::start_scatter_sum(const Tensor& x) const {
  if (x.size(1) % size() != 0) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("a sequence of {} tokens is not divisible by {} ranks", x.size(1), size()));
  }
  // [B, T, C] -> [n, B, T/n, C]
  const Tensor parts = x.unflatten(1, {size(), -1}).transpose(0, 1).contiguous();
  Tensor mine = at::empty(parts.sizes().slice(1), x.options());
  return {mine, parts, communicator_->reduce_scatter(mine, parts)};
}

Tensor TensorGroup::scatter_sum_sequence(const Tensor& x) const {
  Sum sum = start_scatter_sum(x);
  sum.pending.wait();
  return sum.result;
}

Tensor Region::enter(const Tensor& x, const std::shared_ptr<DeferredQueue>& meanwhile) const {
  auto entrance = c10::make_intrusive<HeldEntrance>();
  entrance->region = *this;
  entrance->meanwhile = meanwhile;
  return Enter::apply(x, entrance);
}

Tensor Region::gather(const Tensor& x) const {
  return shards_sequence() ? Gather::apply(x, group) : x;
}

Tensor Region::leave(const Tensor& x) const {
  return shards_sequence() ? Scatter::apply(x, group) : SumForward::apply(x, group);
}

}  // namespace lockstep::parallel
