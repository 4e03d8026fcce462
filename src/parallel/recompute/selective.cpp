// Recomputes the outputs of MLP activations.
#include "parallel/recompute/selective.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "nn/activation.h"
#include "nn/experts.h"
#include "parallel/autograd/backward_hooks.h"

namespace lockstep::parallel {
namespace {

/// Most recent inputs of a block's activation: the outputs of mlp_up and, if the MLP is gated, of
/// mlp_gate.
struct ActivationInput {
  Tensor up, gate;
};

/// Frees a tensor's memory. When the backward pass reaches `y`, `again` recomputes the tensor.
Tensor drop_until_backward(const Tensor& x, const Tensor& y, std::function<Tensor()> again) {
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  storage->set_data_ptr(storage->allocator()->allocate(0));
  return when_backward_reaches(y, [held = x.storage(), again = std::move(again)] {
    const at::NoGradGuard no_grad;
    const Tensor value = again();
    c10::StorageImpl* from = value.storage().unsafeGetStorageImpl();
    held.unsafeGetStorageImpl()->set_data_ptr(from->set_data_ptr(from->allocator()->allocate(0)));
  });
}

/// Base class of linear layers that wrap another linear layer.
struct WrappedLinear : nn::Linear {
  WrappedLinear(std::shared_ptr<nn::Linear> inner, std::shared_ptr<ActivationInput> input)
      : Linear(nullptr),
        inner(std::move(inner)),
        input(std::move(input)) {}
  std::shared_ptr<nn::Linear> inner;
  std::shared_ptr<ActivationInput> input;
  std::shared_ptr<nn::LinearKernel>& product() override { return inner->product(); }
  void visit_parameters(const nn::ParameterFunction& function) override {
    inner->visit_parameters(function);
  }
};

/// Records the output of the wrapped layer.
struct RememberingLinear final : WrappedLinear {
  RememberingLinear(
      std::shared_ptr<nn::Linear> inner,
      std::shared_ptr<ActivationInput> input,
      Tensor ActivationInput::* which)
      : WrappedLinear(std::move(inner), std::move(input)),
        which(which) {}
  Tensor ActivationInput::* which;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override {
    Tensor y = inner->forward(x, context);
    if (at::GradMode::is_enabled() && y.requires_grad()) {
      (*input).*which = y.detach();
    }
    return y;
  }
};

/// Variant for gate and up projections in one product, concatenated or interleaved.
struct RememberingGatedLinear final : WrappedLinear {
  RememberingGatedLinear(
      std::shared_ptr<nn::Linear> inner, std::shared_ptr<ActivationInput> input, bool is_in_pairs)
      : WrappedLinear(std::move(inner), std::move(input)),
        is_in_pairs(is_in_pairs) {}
  bool is_in_pairs;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override {
    Tensor y = inner->forward(x, context);
    if (at::GradMode::is_enabled() && y.requires_grad()) {
      if (is_in_pairs) {
        const nn::GateAndUp both(y.detach());
        *input = {.up = both.up, .gate = both.gate};
      } else {
        const auto both = y.detach().chunk(2, -1);
        *input = {.up = both[1], .gate = both[0]};
      }
    }
    return y;
  }
};

/// Frees the layer's input after the forward pass.
struct DroppingLinear final : WrappedLinear {
  DroppingLinear(
      std::shared_ptr<nn::Linear> inner,
      std::shared_ptr<ActivationInput> input,
      const nn::Gate& gate)
      : WrappedLinear(std::move(inner), std::move(input)),
        gate(gate) {}
  nn::Gate gate;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override {
    Tensor y = inner->forward(x, context);
    const ActivationInput read = std::exchange(*input, {});
    const bool is_own = read.up.defined() && x.is_contiguous() && x.sizes() == read.up.sizes() &&
                        x.storage().nbytes() == x.nbytes() && !x.is_alias_of(read.up);
    if (!at::GradMode::is_enabled() || !y.requires_grad() || !is_own) {
      return y;
    }
    return drop_until_backward(x, y, [read, gate = gate] {
      return read.gate.defined() ? nn::activate_gate(gate, read.gate, read.up)
                                 : nn::activate(gate.activation, read.up);
    });
  }
};

}  // namespace

void drop_activation_outputs(nn::LanguageModel& model, int64_t every) {
  std::map<int64_t, std::shared_ptr<ActivationInput>> inputs;  // keyed by layer
  model.visit_slots(nn::each<nn::Linear>([&](const nn::SlotName& name,
                                             std::shared_ptr<nn::Linear>& slot) {
    if (name.layer < 0 || name.layer % every != 0) {
      return;
    }
    auto& input = inputs[name.layer];
    if (input == nullptr) {
      input = std::make_shared<ActivationInput>();
    }
    if (name.role == "mlp_up" || name.role == "expert_up") {
      slot = std::make_shared<RememberingLinear>(slot, input, &ActivationInput::up);
    } else if (name.role == "mlp_gate_up" || name.role == "expert_gate_up") {
      slot = std::make_shared<RememberingGatedLinear>(slot, input, name.role == "expert_gate_up");
    } else if (name.role == "mlp_gate" || name.role == "expert_gate") {
      slot = std::make_shared<RememberingLinear>(slot, input, &ActivationInput::gate);
    } else if (name.role == "mlp_down") {
      slot = std::make_shared<DroppingLinear>(slot, input, model.config().activation);
    } else if (name.role == "expert_down") {
      slot = std::make_shared<DroppingLinear>(slot, input, nn::Gate(model.config()));
    }
  }));
}

}  // namespace lockstep::parallel
