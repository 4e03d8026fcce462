// RMS norm over heads that are sharded over ranks.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "parallel/tensor/layers.h"

namespace lockstep::parallel {
namespace {

struct HeldNorm : torch::CustomClassHolder {
  Group group;
  double width = 0, copies = 1, eps = 0;
  bool rounds_twice = false;  // also rounds before the multiplication with the weight
};

at::ScalarType high_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// y = w x / r with r^2 = mean(x^2) + eps over the width W of all ranks. If g is the gradient of y,
/// the gradient of x is (w g - x / r^2 mean(w g x)) / r. Each rank with a replica of a head counts
/// only its share of the squares, and holds only the part of g that comes from its own queries: the
/// sum of w g x over the replicas is correct, and each replica subtracts its share of it.
struct NormFunction : torch::autograd::Function<NormFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const Tensor& weight,
      const c10::intrusive_ptr<HeldNorm>& norm) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor high = x.to(high_type(x));
    const Tensor squares =
        norm->group->sum(high.square().sum(-1, /*keepdim=*/true).div_(norm->copies * norm->width));
    const Tensor inverse = squares.add_(norm->eps).rsqrt_();
    context->save_for_backward({x, weight, inverse});
    context->saved_data["norm"] = c10::IValue::make_capsule(norm);
    const Tensor normal = high * inverse;
    return norm->rounds_twice ? normal.to(x.scalar_type()) * weight
                              : (normal * weight.to(high.scalar_type())).to(x.scalar_type());
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto norm =
        c10::static_intrusive_pointer_cast<HeldNorm>(context->saved_data["norm"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2];
    const auto type = high_type(x);
    const Tensor gradient = gradients[0].to(type), normal = x.to(type) * inverse;
    const Tensor weighted = gradient * weight.to(type);
    const Tensor mean =
        norm->group->sum((weighted * normal).sum(-1, /*keepdim=*/true).div_(norm->width));
    const Tensor of_x = (weighted - normal * mean.div_(norm->copies)) * inverse;
    const Tensor of_weight = (gradient * normal).flatten(0, -2).sum(0);
    return {of_x.to(x.scalar_type()), of_weight.to(weight.scalar_type()), Tensor()};
  }
};

}  // namespace

Tensor NormOverRanks::forward(const Tensor& x) const {
  const bool is_exact = kind == nn::NormKind::kExactRmsNorm;
  if (!is_exact && kind != nn::NormKind::kRmsNorm) {
    throw Error(ErrorKind::kInternal, "norms over the heads of all tensor ranks must be RMS norms");
  }
  auto held = c10::make_intrusive<HeldNorm>();
  held->group = region.group;
  held->width = static_cast<double>(width);
  held->copies = copies;
  held->eps = eps;
  held->rounds_twice = !is_exact;
  return NormFunction::apply(x, weight, held);
}

}  // namespace lockstep::parallel
