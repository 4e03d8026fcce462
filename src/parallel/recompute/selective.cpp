#include "parallel/recompute/selective.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "nn/activation.h"
#include "parallel/data/passage.h"

namespace lockstep::parallel {
namespace {

/// What the activation of a block read last: the outputs of mlp_up, and of mlp_gate where there is
/// one.
struct ActivationInput {
  Tensor up, gate;
};

/// Takes a tensor's memory, and gives it what `again` computes when the backward pass comes to `y`.
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

nn::Linear::Product remembering(
    nn::Linear::Product inner,
    std::shared_ptr<ActivationInput> input,
    Tensor ActivationInput::* which) {
  return [inner = std::move(inner), input = std::move(input), which](
             const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    Tensor y = inner(x, weight, bias);
    if (at::GradMode::is_enabled() && y.requires_grad()) {
      (*input).*which = y.detach();
    }
    return y;
  };
}

nn::Linear::Product dropping(
    nn::Linear::Product inner,
    std::shared_ptr<ActivationInput> input,
    model::Activation activation) {
  return [inner = std::move(inner), input = std::move(input), activation](
             const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    Tensor y = inner(x, weight, bias);
    const ActivationInput read = std::exchange(*input, {});
    const bool is_own = read.up.defined() && x.is_contiguous() && x.sizes() == read.up.sizes() &&
                        x.storage().nbytes() == x.nbytes() && !x.is_alias_of(read.up);
    if (!at::GradMode::is_enabled() || !y.requires_grad() || !is_own) {
      return y;
    }
    return drop_until_backward(x, y, [read, activation] {
      return read.gate.defined() ? nn::activate(activation, read.gate) * read.up
                                 : nn::activate(activation, read.up);
    });
  };
}

class DropActivations final : public nn::SlotVisitor {
 public:
  DropActivations(model::Activation activation, int64_t every)
      : activation_(activation),
        every_(every) {}

  void linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) override {
    if (name.layer < 0 || name.layer % every_ != 0) {
      return;
    }
    auto& input = inputs_[name.layer];
    if (input == nullptr) {
      input = std::make_shared<ActivationInput>();
    }
    if (name.role == "mlp_up") {
      slot->product = remembering(slot->product, input, &ActivationInput::up);
    } else if (name.role == "mlp_gate") {
      slot->product = remembering(slot->product, input, &ActivationInput::gate);
    } else if (name.role == "mlp_down") {
      slot->product = dropping(slot->product, input, activation_);
    }
  }

 private:
  model::Activation activation_;
  int64_t every_;
  std::map<int64_t, std::shared_ptr<ActivationInput>> inputs_;  // by layer
};

}  // namespace

void drop_activation_outputs(nn::LanguageModel& model, int64_t every) {
  DropActivations visitor(model.config().activation, every);
  model.visit_slots(visitor);
}

}  // namespace lockstep::parallel
