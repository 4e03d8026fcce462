// Scope guard that swaps an optimizer's averaged weights into the model.
#pragma once

#include <exception>

#include "base/log.h"
#include "parallel/parallel_model.h"

namespace lockstep::train {

/// While an instance exists, the model has the averaged weights, so that these are evaluated, saved
/// or loaded. Does nothing if the optimizer has no averages or another instance is active. Must be
/// constructed and destroyed on every rank.
class Averages {
 public:
  explicit Averages(parallel::ParallelModel& model)
      : model_(model),
        are_put_(model.put_averages(true)) {}
  Averages(const Averages&) = delete;
  Averages& operator=(const Averages&) = delete;
  bool are_put() const { return are_put_; }
  ~Averages() {
    if (!are_put_) {
      return;
    }
    try {
      model_.put_averages(false);
    } catch (const std::exception& error) {  // a rank is lost; the next collective reports it
      log_warning("restoring the training weights after averaging failed: {}", error.what());
    }
  }

 private:
  parallel::ParallelModel& model_;
  bool are_put_;
};

}  // namespace lockstep::train
