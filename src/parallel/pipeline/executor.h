// Executes a pipeline schedule: each rank runs its list of actions and exchanges the resulting
// messages. Independent of models: a stage is a function from tensors to tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "parallel/pipeline/mailbox.h"
#include "parallel/pipeline/stage.h"
#include "schedule/schedule.h"

namespace lockstep::parallel {

/// When an action ran on this rank, in seconds of a steady clock.
struct ActionTimes {
  schedule::Action action;
  double called = 0;   // end of the previous action
  double started = 0;  // arrival of its input from another rank
  double ended = 0;
};
using ActionObserver = std::function<void(const ActionTimes&)>;

class Executor {
 public:
  /// `schedule` must be checked and have as many ranks as `group`; `stages` are this rank's,
  /// ascending, and outlive the executor. `mailbox` may serve other executors of the same group and
  /// number of stages, one at a time.
  Executor(
      schedule::Schedule schedule,
      std::vector<Stage*> stages,
      comm::Communicator& group,
      Mailbox& mailbox);

  /// Runs all actions of this rank. `signatures` [micro-batches] identify the micro-batches'
  /// shapes, equal on every rank: equal signatures have equal message layouts across calls. Without
  /// gradients no graph is kept, and the schedule must have forward passes only. Every rank of the
  /// group must call. Throws exceptions of a stage; Error (peer lost).
  void run(std::span<const uint64_t> signatures);

  /// Observes each finished action. There is one observer at a time; an empty function removes it.
  void set_observer(ActionObserver observer) { observer_ = std::move(observer); }

 private:
  /// A micro-batch in flight in a stage, between its forward pass and the end of its backward pass.
  struct Flight {
    Tensors inputs, outputs;
    std::vector<std::pair<Tensor, Tensor>> gradients;  // parameters, and their input-half gradients
    DeferredWork work;
  };
  /// An action of this rank and its messages.
  struct Step {
    schedule::Action action;
    bool last_accumulation = false;  // last accumulation of its stage in the list
    int from = -1;                   // the rank that sends its input; -1: none
    int sent_at = 0;                 // the action of `from` that sent it
    int to = -1;                     // the rank that it sends to
    int taken_at = 0;                // the action of `to` that receives it
  };
  using Key = std::pair<int, int>;  // stage, micro-batch
  using Local = std::map<Message, Tensors>;

  void plan_steps();
  void forward(const Step& step);
  void backward(const Step& step);
  void backward_whole(const Step& step, Flight& flight, const Tensors& gradients);
  void backward_input(const Step& step, Flight& flight, const Tensors& gradients);
  void backward_weight(const Step& step);
  Tensors take(const Step& step);
  void give(const Step& step, const Tensors& tensors);
  Tensors input_gradients(const Flight& flight) const;

  schedule::Schedule schedule_;
  std::map<int, Stage*> stages_;
  comm::Communicator& group_;
  Mailbox& mailbox_;
  std::vector<Step> steps_;
  std::map<int, std::vector<Message>> coming_;  // messages from each rank, in its order
  std::map<Key, Flight> flights_;
  Local local_;  // messages between stages of this rank
  ActionObserver observer_;
  double started_ = 0;  // start of the current action
};

}  // namespace lockstep::parallel
