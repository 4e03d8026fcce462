#include "parallel/pipeline/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include "comm/threads.h"
#include "parallel/pipeline/executor.h"

namespace lockstep::parallel {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// What a sleeper's backward pass needs; it travels in a capsule.
struct Sleep : torch::CustomClassHolder {
  schedule::StageTimes times;
  DeferredQueue* queue = nullptr;  // null: the backward pass is whole
};

/// The identity, whose gradient takes its time and leaves the weights' for later.
struct SleepingIdentity : torch::autograd::Function<SleepingIdentity> {
  static Tensor forward(
      torch::autograd::AutogradContext* context, const Tensor& x, c10::intrusive_ptr<Sleep> sleep) {
    context->saved_data["sleep"] = c10::IValue::make_capsule(sleep);
    return x.clone();
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const auto sleep =
        c10::static_intrusive_pointer_cast<Sleep>(context->saved_data["sleep"].toCapsule());
    const schedule::StageTimes& times = sleep->times;
    sleep_for(sleep->queue == nullptr ? times.input + times.weight : times.input);
    if (sleep->queue != nullptr) {
      sleep->queue->push([seconds = times.weight] { sleep_for(seconds); });
    }
    return {gradients[0], Tensor()};
  }
};

class Sleeper final : public Stage {
 public:
  enum class Backward { kWhole, kSplit };
  Sleeper(schedule::StageTimes times, Backward backward) : sleep_(c10::make_intrusive<Sleep>()) {
    sleep_->times = times;
    sleep_->queue = backward == Backward::kSplit ? &queue_ : nullptr;
  }
  Tensors forward(int /*micro_batch*/, const Tensors& inputs) override {
    sleep_for(sleep_->times.forward);
    return {SleepingIdentity::apply(inputs.empty() ? weight_ : inputs.front(), sleep_)};
  }
  Tensors parameters() override { return {weight_}; }
  DeferredQueue* deferred() override { return sleep_->queue; }

 private:
  Tensor weight_ = at::ones({1}).requires_grad_();
  DeferredQueue queue_;
  c10::intrusive_ptr<Sleep> sleep_;
};

/// As stages are trained: they split their backward passes where the schedule does anywhere.
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
    const schedule::Schedule& schedule, const schedule::Durations& durations) {
  std::vector<std::vector<ActionTimes>> times(static_cast<size_t>(schedule.ranks));
  comm::run_ranks(schedule.ranks, [&](comm::Communicator& group) {
    std::vector<std::unique_ptr<Sleeper>> sleepers;
    std::vector<Stage*> stages;
    for (const int stage : schedule.stages_of(group.rank())) {
      sleepers.push_back(std::make_unique<Sleeper>(
          durations.stages[static_cast<size_t>(stage)], backward_of(schedule)));
      stages.push_back(sleepers.back().get());
    }
    Mailbox mailbox(group, c10::Device(c10::kCPU), schedule.stages);
    Executor executor(schedule, stages, group, mailbox);
    const std::vector<uint64_t> signatures(static_cast<size_t>(schedule.micro_batches), 1);
    group.barrier();
    auto& own = times[static_cast<size_t>(group.rank())];
    executor.set_observer([&](const ActionTimes& action) { own.push_back(action); });
    executor.run(signatures);
  });
  return timeline_of(times);
}

}  // namespace lockstep::parallel
