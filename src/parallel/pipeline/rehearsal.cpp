// Rehearses schedules on stages that only consume time.
#include "parallel/pipeline/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include "comm/threads.h"
#include "parallel/pipeline/executor.h"

namespace lockstep::parallel {
namespace {

/// Clock of a rank's stages. With the virtual clock, a message carries the time at which it was
/// sent, and the receiving rank advances its clock to that time if it is later.
struct Pace : torch::CustomClassHolder {
  RehearsalClock clock = RehearsalClock::kWall;
  double now = 0;
  std::optional<double> started;  // start time of the current action

  /// Advances by `seconds` after the arrival of `message` (undefined: no message). Returns the
  /// message that carries the end time.
  Tensor take(const Tensor& message, double seconds) {
    if (clock == RehearsalClock::kWall) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      return at::ones({1}, at::kDouble);
    }
    now = std::max(now, message.defined() ? message.item<double>() : 0.0);
    started = started.value_or(now);
    now += seconds;
    return at::full({1}, now, at::kDouble);
  }
};

/// Data of a sleeping stage's backward pass, wrapped for autograd.
struct Sleep : torch::CustomClassHolder {
  schedule::StageTimes times;
  bool is_last = false;            // last stage: the gradient does not come from a message
  DeferredQueue* queue = nullptr;  // null: the backward pass is not split
  c10::intrusive_ptr<Pace> pace;
};

/// Autograd function whose backward pass consumes time and defers the weight half.
struct SleepingFunction : torch::autograd::Function<SleepingFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& /*x*/,
      const Tensor& y,
      c10::intrusive_ptr<Sleep> sleep) {
    context->saved_data["sleep"] = c10::IValue::make_capsule(sleep);
    return y.clone();
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const auto sleep =
        c10::static_intrusive_pointer_cast<Sleep>(context->saved_data["sleep"].toCapsule());
    const schedule::StageTimes& times = sleep->times;
    const Tensor message = sleep->is_last ? Tensor() : gradients[0];
    if (sleep->queue == nullptr) {
      return {sleep->pace->take(message, times.input + times.weight), Tensor(), Tensor()};
    }
    sleep->queue->push([pace = sleep->pace, seconds = times.weight] { pace->take({}, seconds); });
    return {sleep->pace->take(message, times.input), Tensor(), Tensor()};
  }
};

class Sleeper final : public Stage {
 public:
  enum class Backward { kWhole, kSplit };
  Sleeper(
      schedule::StageTimes times, Backward backward, bool is_last, c10::intrusive_ptr<Pace> pace)
      : sleep_(c10::make_intrusive<Sleep>()) {
    sleep_->times = times;
    sleep_->is_last = is_last;
    sleep_->queue = backward == Backward::kSplit ? &queue_ : nullptr;
    sleep_->pace = std::move(pace);
  }
  Tensors forward(int /*micro_batch*/, const Tensors& inputs) override {
    const Tensor message = inputs.empty() ? Tensor() : inputs.front().detach();
    const Tensor told = sleep_->pace->take(message, sleep_->times.forward);
    return {SleepingFunction::apply(inputs.empty() ? weight_ : inputs.front(), told, sleep_)};
  }
  Tensors parameters() override { return {weight_}; }
  DeferredQueue* deferred() override { return sleep_->queue; }

 private:
  Tensor weight_ = at::ones({1}, at::kDouble).requires_grad_();
  DeferredQueue queue_;
  c10::intrusive_ptr<Sleep> sleep_;
};

/// As in training, all backward passes are split if the schedule splits any.
Sleeper::Backward backward_of(const schedule::Schedule& schedule) {
  for (const std::vector<schedule::Action>& actions : schedule.actions) {
    for (const schedule::Action& action : actions) {
      if (action.kind == schedule::ActionKind::kBackwardInput) {
        return Sleeper::Backward::kSplit;
      }
    }
  }
  return Sleeper::Backward::kWhole;
}

schedule::Timeline timeline_of(const std::vector<std::vector<ActionTimes>>& ranks) {
  double zero = std::numeric_limits<double>::infinity();
  for (const auto& times : ranks) {
    zero = std::min(zero, times.front().started);
  }
  schedule::Timeline timeline;
  for (const auto& times : ranks) {
    auto& spans = timeline.spans.emplace_back();
    double busy = 0;
    for (const ActionTimes& action : times) {
      spans.push_back({action.started - zero, action.ended - zero});
      busy += action.ended - action.started;
    }
    timeline.busy.push_back(busy);
    timeline.first.push_back(spans.front().start);
    timeline.last.push_back(spans.back().end);
    timeline.end = std::max(timeline.end, spans.back().end);
  }
  return timeline;
}

}  // namespace

schedule::Timeline rehearse(
    const schedule::Schedule& schedule,
    const schedule::Durations& durations,
    RehearsalClock clock) {
  std::vector<std::vector<ActionTimes>> times(static_cast<size_t>(schedule.ranks));
  comm::run_ranks(schedule.ranks, [&](comm::Communicator& group) {
    const auto pace = c10::make_intrusive<Pace>();
    pace->clock = clock;
    std::vector<std::unique_ptr<Sleeper>> sleepers;
    std::vector<Stage*> stages;
    for (const int stage : schedule.stages_of(group.rank())) {
      sleepers.push_back(std::make_unique<Sleeper>(
          durations.stages[static_cast<size_t>(stage)],
          backward_of(schedule),
          stage + 1 == schedule.stages,
          pace));
      stages.push_back(sleepers.back().get());
    }
    Mailbox mailbox(group, c10::Device(c10::kCPU), schedule.rank_of_stage);
    Executor executor(schedule, stages, group, mailbox);
    const std::vector<uint64_t> signatures(static_cast<size_t>(schedule.micro_batches), 1);
    group.barrier();
    auto& own = times[static_cast<size_t>(group.rank())];
    executor.set_observer([&](const ActionTimes& action) {
      own.push_back(action);
      if (clock == RehearsalClock::kVirtual) {
        own.back().started = pace->started.value();
        own.back().ended = pace->now;
        pace->started.reset();
      }
    });
    executor.run(signatures);
  });
  return timeline_of(times);
}

}  // namespace lockstep::parallel
