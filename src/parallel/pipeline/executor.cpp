#include "parallel/pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

using schedule::Action;
using schedule::ActionKind;

/// Messages that are awaited so many actions ahead of their use, so that they travel meanwhile.
constexpr size_t kActionsAhead = 3;

bool is_forward(const Action& action) {
  return action.kind == ActionKind::kForward;
}
bool makes_input_gradient(const Action& action) {
  return action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
}
bool makes_weight_gradient(const Action& action) {
  return action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
}

Tensors requiring_gradients(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& tensor : tensors) {
    if (tensor.requires_grad()) {
      result.push_back(tensor);
    }
  }
  return result;
}

/// The same values as leaves of another stage's graph.
Tensors as_leaves(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& tensor : tensors) {
    result.push_back(tensor.detach().set_requires_grad(tensor.requires_grad()));
  }
  return result;
}

}  // namespace

Executor::Executor(
    schedule::Schedule schedule,
    std::vector<Stage*> stages,
    comm::Communicator& group,
    Mailbox& mailbox)
    : schedule_(std::move(schedule)),
      group_(group),
      mailbox_(mailbox) {
  const std::vector<int> own = schedule_.stages_of(group_.rank());
  if (schedule_.ranks != group_.size() || own.size() != stages.size()) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "rank {} of {} holds {} stages, and the schedule gives it {} on {} ranks",
            group_.rank(),
            group_.size(),
            stages.size(),
            own.size(),
            schedule_.ranks));
  }
  for (size_t i = 0; i < own.size(); ++i) {
    stages_[own[i]] = stages[i];
  }
  plan_steps();
}

void Executor::plan_steps() {
  // Where each action stands in its rank's list: input gradients by kBackward, whole or not.
  std::map<std::tuple<bool, int, int>, int> position;
  for (const std::vector<Action>& actions : schedule_.actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != ActionKind::kBackwardWeight) {
        position[{is_forward(actions[i]), actions[i].stage, actions[i].micro_batch}] =
            static_cast<int>(i);
      }
    }
  }
  const int rank = group_.rank();
  const auto rank_of = [&](int stage) {
    const bool exists = stage >= 0 && stage < schedule_.stages;
    const int other = exists ? schedule_.rank_of_stage[static_cast<size_t>(stage)] : -1;
    return other == rank ? -1 : other;
  };
  std::map<int, size_t> last;  // by stage
  for (const Action& action : schedule_.actions[static_cast<size_t>(rank)]) {
    Step step{.action = action};
    if (action.kind != ActionKind::kBackwardWeight) {
      const bool forward = is_forward(action);
      const int before = action.stage + (forward ? -1 : 1),
                after = action.stage - (forward ? -1 : 1);
      step.from = rank_of(before);
      step.to = rank_of(after);
      if (step.from >= 0) {
        step.sent_at = position.at({forward, before, action.micro_batch});
      }
      if (step.to >= 0) {
        step.taken_at = position.at({forward, after, action.micro_batch});
      }
    }
    if (makes_weight_gradient(action)) {
      last[action.stage] = steps_.size();
    }
    steps_.push_back(step);
  }
  for (const auto& [stage, index] : last) {
    steps_[index].last_accumulation = true;
  }
}

void Executor::run(std::span<const uint64_t> signatures) {
  if (signatures.size() != static_cast<size_t>(schedule_.micro_batches)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "{} micro-batches for a schedule of {}", signatures.size(), schedule_.micro_batches));
  }
  flights_.clear();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const Action& action = step.action;
    const uint64_t signature = signatures[static_cast<size_t>(action.micro_batch)];
    for (size_t ahead = i; ahead < std::min(steps_.size(), i + 1 + kActionsAhead); ++ahead) {
      expect(steps_[ahead], signatures);
    }
    const double called = seconds_now();
    started_ = called;
    in_context(
        fmt::format("pipeline rank {}, action {}", group_.rank(), schedule::action_text(action)),
        [&] {
          if (is_forward(action)) {
            forward(step, signature);
          } else if (makes_input_gradient(action)) {
            backward(step, signature);
          } else {
            backward_weight(step);
          }
        });
    if (observer_) {
      observer_({action, called, started_, seconds_now()});
    }
  }
  mailbox_.finish();
}

void Executor::expect(const Step& step, std::span<const uint64_t> signatures) {
  if (step.from < 0) {
    return;
  }
  const Action& action = step.action;
  const uint64_t signature = signatures[static_cast<size_t>(action.micro_batch)];
  if (is_forward(action)) {
    mailbox_.expect_activations(step.from, {action.stage, action.micro_batch, signature});
    return;
  }
  const auto flight = flights_.find({action.stage, action.micro_batch});
  if (flight != flights_.end()) {  // its forward pass has run: the layouts are known
    mailbox_.expect_gradients(
        step.from,
        {action.stage + 1, action.micro_batch, signature},
        layouts_of(flight->second.outputs));
  }
}

Tensors Executor::take_inputs(const Step& step, uint64_t signature) {
  const auto& [kind, stage, micro_batch] = step.action;
  if (stage == 0) {
    return {};
  }
  if (step.from < 0) {
    return std::move(local_activations_.extract({stage, micro_batch}).mapped());
  }
  Tensors inputs = mailbox_.receive_activations(step.from, {stage, micro_batch, signature});
  mailbox_.sent_until(step.from, step.sent_at);
  started_ = seconds_now();
  return inputs;
}

Tensors Executor::take_gradients(const Step& step, const Flight& flight, uint64_t signature) {
  const auto& [kind, stage, micro_batch] = step.action;
  if (stage + 1 == schedule_.stages) {
    return {};
  }
  if (step.from < 0) {
    return std::move(local_gradients_.extract({stage + 1, micro_batch}).mapped());
  }
  Tensors gradients = mailbox_.receive_gradients(
      step.from, {stage + 1, micro_batch, signature}, layouts_of(flight.outputs));
  mailbox_.sent_until(step.from, step.sent_at);
  started_ = seconds_now();
  return gradients;
}

void Executor::give_outputs(const Step& step, const Tensors& outputs, uint64_t signature) {
  const auto& [kind, stage, micro_batch] = step.action;
  if (stage + 1 == schedule_.stages) {
    return;
  }
  if (step.to < 0) {
    local_activations_[{stage + 1, micro_batch}] = as_leaves(outputs);
  } else {
    mailbox_.send_activations(step.to, {stage + 1, micro_batch, signature}, outputs, step.taken_at);
  }
}

void Executor::give_gradients(const Step& step, const Flight& flight, uint64_t signature) {
  const auto& [kind, stage, micro_batch] = step.action;
  if (stage == 0) {
    return;
  }
  Tensors gradients;
  for (const Tensor& input : requiring_gradients(flight.inputs)) {
    const Tensor gradient = input.grad();
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(input));
  }
  if (step.to < 0) {
    local_gradients_[{stage, micro_batch}] = std::move(gradients);
  } else {
    mailbox_.send_gradients(step.to, {stage, micro_batch, signature}, gradients, step.taken_at);
  }
}

void Executor::forward(const Step& step, uint64_t signature) {
  const auto& [kind, stage, micro_batch] = step.action;
  Flight flight;
  flight.inputs = take_inputs(step, signature);
  flight.outputs = stages_.at(stage)->forward(micro_batch, flight.inputs);
  give_outputs(step, flight.outputs, signature);
  if (at::GradMode::is_enabled()) {
    flights_[{stage, micro_batch}] = std::move(flight);
  }
}

void Executor::backward(const Step& step, uint64_t signature) {
  const auto& [kind, stage, micro_batch] = step.action;
  Flight& flight = flights_.at({stage, micro_batch});
  const Tensors gradients = take_gradients(step, flight, signature);
  const bool whole = kind == ActionKind::kBackward && stages_.at(stage)->deferred() == nullptr;
  if (whole) {
    backward_whole(step, flight, gradients);
  } else {
    backward_input(step, flight, gradients);
  }
  give_gradients(step, flight, signature);
  flight.inputs.clear();
  flight.outputs.clear();
  if (whole) {
    flights_.erase({stage, micro_batch});
  } else if (kind == ActionKind::kBackward) {
    backward_weight(step);
  }
}

void Executor::backward_whole(const Step& step, Flight& flight, const Tensors& gradients) {
  Stage& stage = *stages_.at(step.action.stage);
  stage.begin_accumulation(step.last_accumulation);
  const Tensors outputs = requiring_gradients(flight.outputs);
  if (!outputs.empty()) {
    torch::autograd::backward(outputs, gradients);
  }
  stage.end_accumulation();
}

void Executor::backward_input(const Step& step, Flight& flight, const Tensors& gradients) {
  Stage& stage = *stages_.at(step.action.stage);
  const Tensors outputs = requiring_gradients(flight.outputs);
  const Tensors inputs = requiring_gradients(flight.inputs);
  Tensors wanted = inputs;
  for (const Tensor& parameter : requiring_gradients(stage.parameters())) {
    wanted.push_back(parameter);
  }
  if (outputs.empty() || wanted.empty()) {
    return;
  }
  // Gradients of what is not a linear's are made here too: they are small, or come with the
  // input's.
  Tensors made = torch::autograd::grad(
      outputs,
      wanted,
      gradients,
      /*retain_graph=*/false,
      /*create_graph=*/false,
      /*allow_unused=*/true);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i < inputs.size()) {
      inputs[i].mutable_grad() = std::move(made[i]);
    } else if (made[i].defined()) {
      flight.gradients.emplace_back(wanted[i], std::move(made[i]));
    }
  }
  if (stage.deferred() != nullptr) {
    flight.work = stage.deferred()->take();
  }
}

void Executor::backward_weight(const Step& step) {
  Stage& stage = *stages_.at(step.action.stage);
  auto node = flights_.extract({step.action.stage, step.action.micro_batch});
  Flight& flight = node.mapped();
  stage.begin_accumulation(step.last_accumulation);
  for (auto& [parameter, gradient] : flight.gradients) {
    nn::accumulate_gradient(parameter, std::move(gradient));
  }
  for (std::function<void()>& work : flight.work) {
    std::exchange(work, nullptr)();  // and lets go of what it held
  }
  stage.end_accumulation();
}

}  // namespace lockstep::parallel
