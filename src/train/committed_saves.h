// Record of a run's saves: a checkpoint is reported as saved only after its commit.
#pragma once

#include <cstdint>
#include <optional>

#include "train/job.h"
#include "train/steering.h"

namespace lockstep::train {

/// Records the event "saved" and replies to requests to save. Every rank must call all methods.
class CommittedSaves {
 public:
  /// The arguments must outlive the object.
  CommittedSaves(Job& job, Steering& steering) : job_(job), steering_(steering) {}

  /// Must be called after save_training_state(), which took `waited_s` seconds. A save that goes on
  /// in the background is reported by a later call.
  void end_save(double waited_s, bool goes_on);
  /// True if a save in the background has not been reported.
  bool is_saving() const { return saving_.has_value(); }
  /// Reports the save in the background if it is committed.
  void poll();
  /// Waits for the save in the background, if any, and reports it. Rethrows its failure.
  void wait();

 private:
  /// A save, with the values of its step.
  struct Save {
    int64_t step;
    double waited_s;    // time that training waited
    double in_steps_s;  // Monitor::seconds_in_steps()
    bool in_background;
  };
  void record(const Save& save);
  void report();

  Job& job_;
  Steering& steering_;
  std::optional<Save> saving_;
};

}  // namespace lockstep::train
