// Early end of evaluations when a signal asks for a save or a stop.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/communicator.h"
#include "train/stop_signal.h"

namespace lockstep::train {

struct Job;

/// Thrown on every rank by Interruption::check. Not an error: the work is left, to be done again.
struct Interrupted {
  SaveSignals::Asked asked;
};

/// Lets the ranks leave an evaluation together. It ends between two batches, the same on all ranks,
/// because the ranks exchange their signals there.
class Interruption {
 public:
  /// The arguments must outlive the object.
  Interruption(comm::Communicator& communicator, const StopSignal& stop, SaveSignals& save)
      : communicator_(communicator),
        stop_(stop),
        save_(save) {}

  /// Ignores requests to save from now on: the state has been saved.
  void ignore_saves() { ignores_saves_ = true; }
  /// Throws Interrupted on every rank if any rank was asked to save or to stop. Every rank must
  /// call it equally often.
  void check();

 private:
  comm::Communicator& communicator_;
  const StopSignal& stop_;
  SaveSignals& save_;
  bool ignores_saves_ = false;
};

/// Returns a function to call between the batches of an evaluation: it shows the progress, and
/// throws Interrupted if a signal ends the evaluation.
std::function<void(int64_t done, int64_t all)> between_batches(Job& job);

/// Runs `body` and returns the request that ended it early; kNothing if it completed.
SaveSignals::Asked interrupted_by(const std::function<void()>& body);

}  // namespace lockstep::train
