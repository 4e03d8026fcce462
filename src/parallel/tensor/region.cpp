#include "parallel/tensor/region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

/// A collective whose backward pass is another one.
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

using SumBackward = Conjugate<&TensorGroup::identity, &TensorGroup::sum>;
using SumForward = Conjugate<&TensorGroup::sum, &TensorGroup::identity>;
using Gather = Conjugate<&TensorGroup::gather_sequence, &TensorGroup::scatter_sum_sequence>;
using Scatter = Conjugate<&TensorGroup::scatter_sum_sequence, &TensorGroup::gather_sequence>;

}  // namespace

Tensor TensorGroup::sum(const Tensor& x) const {
  Tensor y = x.clone(at::MemoryFormat::Contiguous);
  communicator_->all_reduce(y).wait();
  return y;
}

Tensor TensorGroup::gather_sequence(const Tensor& x) const {
  Tensor parts = at::empty({size(), x.size(0), x.size(1), x.size(2)}, x.options());
  communicator_->all_gather(parts, x.contiguous()).wait();
  return parts.transpose(0, 1).flatten(1, 2);  // [B, n, T/n, C] -> [B, T, C]
}

Tensor TensorGroup::scatter_sum_sequence(const Tensor& x) const {
  if (x.size(1) % size() != 0) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("a sequence of {} is cut among {} ranks", x.size(1), size()));
  }
  // [B, T, C] -> [n, B, T/n, C]
  const Tensor parts = x.unflatten(1, {size(), -1}).transpose(0, 1).contiguous();
  Tensor mine = at::empty(parts.sizes().slice(1), x.options());
  communicator_->reduce_scatter(mine, parts).wait();
  return mine;
}

Tensor Region::enter(const Tensor& x) const {
  return shards_sequence() ? Gather::apply(x, group) : SumBackward::apply(x, group);
}

Tensor Region::leave(const Tensor& x) const {
  return shards_sequence() ? Scatter::apply(x, group) : SumForward::apply(x, group);
}

Tensor Region::share(const Tensor& parameter) const {
  return shards_sequence() && parameter.defined() ? sum_gradient(parameter, group) : parameter;
}

Tensor sum_gradient(const Tensor& parameter, const Group& group) {
  return SumBackward::apply(parameter, group);
}

}  // namespace lockstep::parallel
