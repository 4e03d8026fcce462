// Implements checkpoints of libtorch modules and optimizers.
#include "library/module_checkpoint.h"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {
namespace {

using at::Tensor;
using checkpoint::ExpectedTensor;
using checkpoint::Piece;

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> all;
  for (const auto& parameter : module.named_parameters()) {
    all.push_back({parameter.key(), parameter.value()});
  }
  for (const auto& buffer : module.named_buffers()) {
    all.push_back({buffer.key(), buffer.value()});
  }
  return all;
}

/// Optimizer parameter and its name in the module.
struct OptimizedParameter {
  std::string name;
  Tensor parameter;
};

/// Returns each parameter once, because modules may share parameters.
std::vector<OptimizedParameter> parameters_of(const TrainedModule& trained) {
  std::map<const void*, std::string> names;
  for (const auto& parameter : trained.module.named_parameters()) {
    names.try_emplace(parameter.value().unsafeGetTensorImpl(), parameter.key());
  }
  std::vector<OptimizedParameter> parameters;
  std::set<std::string> taken;
  for (const auto& group : trained.optimizer->param_groups()) {
    for (const Tensor& parameter : group.params()) {
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      if (name == names.end()) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format(
                "the optimizer has a parameter [{}] that the module does not have",
                fmt::join(parameter.sizes(), ", ")),
            "save the module for which the optimizer was created");
      }
      if (taken.insert(name->second).second) {
        parameters.push_back({name->second, parameter});
      }
    }
  }
  return parameters;
}

/// Optimizer state of one parameter: tensors of the parameter's shape, and the step count.
struct StateOfParameter {
  std::vector<std::pair<const char*, Tensor>> tensors;
  std::optional<int64_t> step;
};

template <class State>
StateOfParameter adam_state(State& state) {
  StateOfParameter all{
      {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}}, state.step()};
  if (state.max_exp_avg_sq().defined()) {
    all.tensors.emplace_back("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  return all;
}

StateOfParameter state_of(torch::optim::OptimizerParamState& state) {
  if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(&state)) {
    return adam_state(*adamw);
  }
  if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(&state)) {
    return adam_state(*adam);
  }
  auto& sgd = dynamic_cast<torch::optim::SGDParamState&>(state);
  StateOfParameter all;
  if (sgd.momentum_buffer().defined()) {
    all.tensors.emplace_back("momentum_buffer", sgd.momentum_buffer());
  }
  return all;
}

void check_kind(torch::optim::Optimizer* optimizer) {
  const bool known = optimizer == nullptr ||
                     dynamic_cast<torch::optim::AdamW*>(optimizer) != nullptr ||
                     dynamic_cast<torch::optim::Adam*>(optimizer) != nullptr ||
                     dynamic_cast<torch::optim::SGD*>(optimizer) != nullptr;
  if (!known) {
    throw Error(
        ErrorKind::kConfig,
        "the optimizer is not torch::optim::AdamW, Adam or SGD",
        "save the module without the optimizer, and save its state separately");
  }
}

std::vector<NamedTensor> optimizer_tensors(const TrainedModule& trained) {
  std::vector<NamedTensor> all;
  auto& states = trained.optimizer->state();
  for (const auto& [name, parameter] : parameters_of(trained)) {
    const auto found = states.find(parameter.unsafeGetTensorImpl());
    if (found == states.end()) {
      continue;  // no state yet: frozen, or before the first step
    }
    const StateOfParameter state = state_of(*found->second);
    for (const auto& [suffix, tensor] : state.tensors) {
      all.push_back({fmt::format("{}.{}", name, suffix), tensor});
    }
    if (state.step) {
      all.push_back({name + ".step", at::full({1}, *state.step, at::kLong)});
    }
  }
  return all;
}

Piece whole_piece(const char* group, const NamedTensor& named) {
  const Tensor dense = named.tensor.detach().contiguous();
  return {group, named.name, dense.scalar_type(), dense.sizes().vec(), 0, dense};
}

/// Reads a whole tensor into a tensor with arbitrary strides.
void read_into(
    const checkpoint::Checkpoint& checkpoint,
    const char* group,
    const std::string& name,
    Tensor tensor) {
  const Tensor dense =
      at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
  checkpoint.read(group, name, 0, dense);
  tensor.copy_(dense);
}

template <class State>
std::unique_ptr<torch::optim::OptimizerParamState> new_adam_state(
    const Tensor& parameter, int64_t step, bool has_maximum) {
  auto state = std::make_unique<State>();
  const Tensor zeros = at::zeros_like(parameter).set_requires_grad(false);
  state->step(step);
  state->exp_avg(zeros);
  state->exp_avg_sq(zeros.clone());
  if (has_maximum) {
    state->max_exp_avg_sq(zeros.clone());
  }
  return state;
}

class OptimizerLoader {
 public:
  OptimizerLoader(const checkpoint::Checkpoint& checkpoint, const TrainedModule& trained)
      : checkpoint_(checkpoint),
        optimizer_(*trained.optimizer),
        parameters_(parameters_of(trained)) {}

  void expect(std::vector<ExpectedTensor>& expected) const {
    for (const auto& [name, parameter] : parameters_) {
      for (const char* suffix : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"}) {
        if (has(name, suffix)) {
          expected.push_back(
              {kOptimizer, fmt::format("{}.{}", name, suffix), parameter.sizes().vec(), {}});
        }
      }
      if (has(name, "step")) {
        expected.push_back({kOptimizer, name + ".step", {1}, at::kLong});
      }
    }
  }

  void load() {
    auto& states = optimizer_.state();
    states.clear();
    for (const auto& [name, parameter] : parameters_) {
      std::unique_ptr<torch::optim::OptimizerParamState> state = new_state(name, parameter);
      if (state == nullptr) {
        continue;
      }
      for (const auto& [suffix, tensor] : state_of(*state).tensors) {
        read_into(checkpoint_, kOptimizer, fmt::format("{}.{}", name, suffix), tensor);
      }
      states[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }

 private:
  bool has(const std::string& name, const char* suffix) const {
    return checkpoint_.has_group(kOptimizer) &&
           checkpoint_.group(kOptimizer).contains(fmt::format("{}.{}", name, suffix));
  }

  std::unique_ptr<torch::optim::OptimizerParamState> new_state(
      const std::string& name, const Tensor& parameter) const {
    if (dynamic_cast<torch::optim::SGD*>(&optimizer_) != nullptr) {
      if (!has(name, "momentum_buffer")) {
        return nullptr;
      }
      auto state = std::make_unique<torch::optim::SGDParamState>();
      state->momentum_buffer(at::zeros_like(parameter).set_requires_grad(false));
      return state;
    }
    if (!has(name, "exp_avg") || !has(name, "step")) {
      return nullptr;
    }
    const Tensor step = at::empty({1}, at::kLong);
    checkpoint_.read(kOptimizer, name + ".step", 0, step);
    const bool has_maximum = has(name, "max_exp_avg_sq");
    return dynamic_cast<torch::optim::AdamW*>(&optimizer_) != nullptr
               ? new_adam_state<torch::optim::AdamWParamState>(
                     parameter, step.item<int64_t>(), has_maximum)
               : new_adam_state<torch::optim::AdamParamState>(
                     parameter, step.item<int64_t>(), has_maximum);
  }

  const checkpoint::Checkpoint& checkpoint_;
  torch::optim::Optimizer& optimizer_;
  std::vector<OptimizedParameter> parameters_;
};

}  // namespace

void save_module(
    const std::filesystem::path& folder,
    const TrainedModule& trained,
    const std::string& state,
    comm::Communicator& ranks) {
  const at::NoGradGuard no_grad;
  check_kind(trained.optimizer);
  std::vector<Piece> whole;
  for (const NamedTensor& named : tensors_of(trained.module)) {
    whole.push_back(whole_piece(kModel, named));
  }
  if (trained.optimizer != nullptr) {
    for (const NamedTensor& named : optimizer_tensors(trained)) {
      whole.push_back(whole_piece(kOptimizer, named));
    }
  }
  const auto share = checkpoint::share_of(whole, ranks.rank(), ranks.size());
  checkpoint::save_checkpoint(folder, share, state, {}, ranks);
}

std::string load_module(const checkpoint::Checkpoint& checkpoint, const TrainedModule& trained) {
  const at::NoGradGuard no_grad;
  check_kind(trained.optimizer);
  const auto tensors = tensors_of(trained.module);
  std::vector<ExpectedTensor> expected;
  for (const NamedTensor& named : tensors) {
    const bool floats = named.tensor.is_floating_point();
    expected.push_back(
        {kModel,
         named.name,
         named.tensor.sizes().vec(),
         floats ? std::nullopt : std::optional(named.tensor.scalar_type())});
  }
  std::optional<OptimizerLoader> optimizer;
  if (trained.optimizer != nullptr) {
    optimizer.emplace(checkpoint, trained);
    optimizer->expect(expected);
  }
  checkpoint.check(expected);
  for (const NamedTensor& named : tensors) {
    read_into(checkpoint, kModel, named.name, named.tensor);
  }
  if (optimizer) {
    optimizer->load();
  }
  return checkpoint.state();
}

}  // namespace lockstep
