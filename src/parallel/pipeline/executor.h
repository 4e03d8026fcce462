// Executes a pipeline schedule. Each rank runs its list of actions and exchanges messages with
// other ranks. The executor does not depend on the model: a stage is a function from tensors to
// tensors.
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

/// Times of an action on this rank, in seconds of a steady clock.
struct ActionTimes {
  schedule::Action action;
  double called = 0;   // the previous action ended
  double started = 0;  // the input from another rank had arrived
  double ended = 0;
};
using ActionObserver = std::function<void(const ActionTimes&)>;

class Executor {
 public:
  /// `schedule` must be valid and have as many ranks as `group`. `stages` are this rank's stages in
  /// ascending order and must outlive the executor. `mailbox` may be shared by executors of the
  /// same group and number of stages, if only one of them runs at a time.
  Executor(
      schedule::Schedule schedule,
      std::vector<Stage*> stages,
      comm::Communicator& group,
      Mailbox& mailbox);

  /// Runs all actions of this rank. `signatures` [micro-batches] identify the shapes of the
  /// micro-batches and must be equal on every rank; message layouts are reused for equal
  /// signatures. If gradients are disabled, no graph is kept and the schedule must contain only
  /// forward passes. Must be called on every rank of the group. Throws the exceptions of stages,
  /// and Error (peer lost).
  void run(std::span<const uint64_t> signatures);

  /// Sets the observer that is called after each action. It replaces the previous one; an empty
  /// function removes it.
  void set_observer(ActionObserver observer) { observer_ = std::move(observer); }

 private:
  /// A stage's data for a micro-batch between its forward pass and the end of its backward pass.
  struct Flight {
    Tensors inputs, outputs;
    std::vector<std::pair<Tensor, Tensor>> gradients;  // parameters and their gradients from the
                                                       // input half
    DeferredWork work;
  };
  /// An action of this rank and the messages that it receives and sends.
  struct Step {
    schedule::Action action;
    bool last_accumulation = false;  // last gradient accumulation of its stage in the list
    int from = -1;                   // rank that sends the input; -1: none
    int sent_at = 0;                 // index of the action on rank `from` that sends it
    int to = -1;                     // rank that receives the output; -1: none
    int taken_at = 0;                // index of the action on rank `to` that receives it
  };
  using Key = std::pair<int, int>;  // (stage, micro-batch)
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
  std::map<int, std::vector<Message>> coming_;  // messages from each rank, in the order of sending
  std::map<Key, Flight> flights_;
  Local local_;  // messages between stages of this rank
  ActionObserver observer_;
  double started_ = 0;  // start time of the current action
};

}  // namespace lockstep::parallel
