// Runs a rank's list of pipeline actions.
#include "parallel/pipeline/executor.h"

#include <algorithm>
#include <optional>
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

/// Receives are posted this number of actions before their use, so that transfers overlap with
/// computation.
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

/// Returns the message that an action receives from the neighboring stage, if any.
std::optional<Message> taken_by(const Action& action, int stages) {
  const bool gradient = !is_forward(action);
  const int stage = action.stage + (gradient ? 1 : 0);
  const bool takes = stage > 0 && stage < stages && action.kind != ActionKind::kBackwardWeight;
  return takes ? std::optional<Message>({stage, action.micro_batch, gradient}) : std::nullopt;
}
/// Returns the message that an action sends to the neighboring stage, if any.
std::optional<Message> given_by(const Action& action, int stages) {
  const bool gradient = !is_forward(action);
  const int stage = action.stage + (gradient ? 0 : 1);
  const bool gives = stage > 0 && stage < stages && action.kind != ActionKind::kBackwardWeight;
  return gives ? std::optional<Message>({stage, action.micro_batch, gradient}) : std::nullopt;
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

/// Returns the same values as leaves of another stage's graph.
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
            "rank {} of {} has {} stages, but the schedule expects {} on {} ranks",
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
  // Index of each action in its rank's list. For kBackward the key means input gradients, whether
  // or not the backward pass is split.
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
  for (int other = 0; other < schedule_.ranks; ++other) {
    for (const Action& action : schedule_.actions[static_cast<size_t>(other)]) {
      const std::optional<Message> message = given_by(action, schedule_.stages);
      const int sink = message ? message->stage - (message->is_gradient ? 1 : 0) : -1;
      if (other != rank && message && schedule_.rank_of_stage[static_cast<size_t>(sink)] == rank) {
        coming_[other].push_back(*message);
      }
    }
  }
  const auto rank_of = [&](int stage) {
    const bool exists = stage >= 0 && stage < schedule_.stages;
    const int other = exists ? schedule_.rank_of_stage[static_cast<size_t>(stage)] : -1;
    return other == rank ? -1 : other;
  };
  std::map<int, size_t> last;  // keyed by stage
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
            "{} micro-batches were given, but the schedule has {}",
            signatures.size(),
            schedule_.micro_batches));
  }
  flights_.clear();
  mailbox_.begin(signatures, coming_);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const Action& action = step.action;
    for (size_t ahead = i; ahead < std::min(steps_.size(), i + 1 + kActionsAhead); ++ahead) {
      if (steps_[ahead].from >= 0) {
        mailbox_.expect(steps_[ahead].from, *taken_by(steps_[ahead].action, schedule_.stages));
      }
    }
    const double called = seconds_now();
    started_ = called;
    in_context(
        fmt::format("pipeline rank {}, action {}", group_.rank(), schedule::action_text(action)),
        [&] {
          if (is_forward(action)) {
            forward(step);
          } else if (makes_input_gradient(action)) {
            backward(step);
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

Tensors Executor::take(const Step& step) {
  const std::optional<Message> message = taken_by(step.action, schedule_.stages);
  if (!message) {
    return {};
  }
  if (step.from < 0) {
    return std::move(local_.extract(*message).mapped());
  }
  Tensors tensors = mailbox_.receive(step.from, *message);
  mailbox_.sent_until(step.from, step.sent_at);
  started_ = seconds_now();
  return tensors;
}

void Executor::give(const Step& step, const Tensors& tensors) {
  const std::optional<Message> message = given_by(step.action, schedule_.stages);
  if (!message) {
    return;
  }
  if (step.to >= 0) {
    mailbox_.send(step.to, *message, tensors, step.taken_at);
  } else {
    local_[*message] = message->is_gradient ? tensors : as_leaves(tensors);
  }
}

Tensors Executor::input_gradients(const Flight& flight) const {
  Tensors gradients;
  for (const Tensor& input : requiring_gradients(flight.inputs)) {
    const Tensor gradient = input.grad();
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(input));
  }
  return gradients;
}

void Executor::forward(const Step& step) {
  const auto& [kind, stage, micro_batch] = step.action;
  Flight flight;
  flight.inputs = take(step);
  flight.outputs = stages_.at(stage)->forward(micro_batch, flight.inputs);
  give(step, flight.outputs);
  if (at::GradMode::is_enabled()) {
    flights_[{stage, micro_batch}] = std::move(flight);
  }
}

void Executor::backward(const Step& step) {
  const auto& [kind, stage, micro_batch] = step.action;
  Flight& flight = flights_.at({stage, micro_batch});
  const Tensors gradients = take(step);
  const bool whole = kind == ActionKind::kBackward && stages_.at(stage)->deferred() == nullptr;
  if (whole) {
    backward_whole(step, flight, gradients);
  } else {
    backward_input(step, flight, gradients);
  }
  give(step, input_gradients(flight));
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
  // Gradients of parameters outside linear layers are also computed here: they are small, or are a
  // by-product of the input gradient.
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
    } else {
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
    std::exchange(work, nullptr)();  // frees the tensors that the closure holds
  }
  stage.end_accumulation();
}

}  // namespace lockstep::parallel
