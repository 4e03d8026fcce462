// Packed (4- and 8-bit) linear kernel and its autograd node.
#include "nn/packed.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace lockstep::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// State of the backward pass other than the bytes, stored in a capsule.
struct Part : torch::CustomClassHolder {
  explicit Part(std::shared_ptr<const ops::PackedPart> part) : part(std::move(part)) {}
  std::shared_ptr<const ops::PackedPart> part;
};

/// Product as one autograd node, which saves the packed bytes instead of the unpacked weights.
struct Multiply : torch::autograd::Function<Multiply> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& bytes,
      const std::optional<Tensor>& bias,
      c10::intrusive_ptr<Part> part) {
    context->save_for_backward({bytes});
    context->saved_data["part"] = c10::IValue::make_capsule(part);
    context->saved_data["has_bias"] = bias.has_value();
    return ops::packed_linear(*part->part, bytes, x, bias.value_or(Tensor()));
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto part =
        c10::static_intrusive_pointer_cast<Part>(context->saved_data["part"].toCapsule());
    const Tensor& gradient = gradients[0];
    tensor_list result(4);
    if (context->needs_input_grad(0)) {
      const Tensor bytes = context->get_saved_variables()[0];
      result[0] = ops::packed_input_gradient(*part->part, bytes, gradient);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = gradient.flatten(0, -2).sum(0);
    }
    return result;
  }
};

}  // namespace

PackedLinearKernel::PackedLinearKernel(ops::PackedPart part, Tensor bytes, Tensor bias)
    : part_(std::make_shared<ops::PackedPart>(std::move(part))),
      bytes_(std::move(bytes)),
      bias_(std::move(bias)) {}

Tensor PackedLinearKernel::forward(const Tensor& x, const Tensor& /*drawn*/) const {
  if (!at::GradMode::is_enabled()) {
    return ops::packed_linear(*part_, bytes_, x, bias_);
  }
  const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
  return Multiply::apply(x, bytes_, bias, c10::make_intrusive<Part>(part_));
}

Tensor PackedLinearKernel::input_gradient(const Tensor& y_gradient, const Tensor& /*drawn*/) const {
  return ops::packed_input_gradient(*part_, bytes_, y_gradient);
}

void PackedLinearKernel::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& /*x*/, const Tensor& /*drawn*/) const {
  if (is_trained()) {
    accumulate_gradient(bias_, y_gradient.flatten(0, -2).sum(0));
  }
}

void PackedLinearKernel::visit_parameters(const ParameterFunction& function) {
  function({"weight", bytes_, 0, 1, part_.get()});
  function({"bias", bias_, 0, -1});
}

Tensor PackedLinearKernel::take_bias() {
  return std::exchange(bias_, Tensor());
}

Tensor PackedLinearKernel::matrix_rows(int64_t first, int64_t count) const {
  return ops::unpack(
      *part_, bytes_, {first, first + count}, {0, part_->columns.size()}, at::kFloat);
}

void pack_linears(LanguageModel& model, const Packing& packing) {
  model.visit_slots(each<Linear>([&](const SlotName& name, std::shared_ptr<Linear>& linear) {
    const auto found = packing.find(name.prefix);
    if (found == packing.end()) {
      return;
    }
    std::shared_ptr<LinearKernel>& product = linear->product();
    ops::PackedPart part;
    at::TensorOptions options;
    product->visit_parameters([&](const Parameter& parameter) {
      if (parameter.name == "weight") {
        const Tensor& weight = parameter.value;
        part = ops::PackedPart::whole(
            found->second, weight.size(parameter.out), weight.size(parameter.in));
        options = weight.options().dtype(at::kByte).requires_grad(false);
      }
    });
    const Tensor bytes = at::empty({part.bytes()}, options);
    product = std::make_shared<PackedLinearKernel>(std::move(part), bytes, product->take_bias());
  }));
}

}  // namespace lockstep::nn
