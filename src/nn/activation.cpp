// Activation functions and gated activations.
#include "nn/activation.h"

#include <ATen/ATen.h>

#include "ops/activations.h"

namespace lockstep::nn {

at::Tensor activate(model::Activation activation, const at::Tensor& x) {
  using model::Activation;
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x, "none");
    case Activation::kGeluTanh:
      return ops::gelu_tanh(x);
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kRelu2:
      return at::square(at::relu(x));
    case Activation::kRelu6:
      return at::relu6(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kTanh:
      return at::tanh(x);
    case Activation::kSigmoid:
      return at::sigmoid(x);
    case Activation::kQuickGelu:
      return x * at::sigmoid(1.702 * x);
    case Activation::kMish:
      return at::mish(x);
    case Activation::kLeakyRelu:
      return at::leaky_relu(x);
    case Activation::kHardswish:
      return at::hardswish(x);
    case Activation::kLinear:
      break;
  }
  return x;
}

at::Tensor activate_gate(const Gate& form, const at::Tensor& gate, const at::Tensor& up) {
  if (form.limit > 0) {
    const at::Tensor most = gate.clamp_max(form.limit);
    return (up.clamp(-form.limit, form.limit) + 1) * (most * at::sigmoid(form.slope * most));
  }
  return form.activation == model::Activation::kSilu ? ops::swiglu(gate, up)
                                                     : activate(form.activation, gate) * up;
}

}  // namespace lockstep::nn
