// The model that an optimizer trains, where that is an average of what it steps through.
#pragma once

#include <exception>

#include "base/log.h"
#include "parallel/parallel_model.h"

namespace lockstep::train {

/// While it lives, the model is what is evaluated, saved and loaded: its averages, where the
/// optimizer has some. One within another does nothing. Every rank must make one.
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
    } catch (const std::exception& error) {  // a rank is lost: what comes next says so
      log_warning("the weights that are trained could not be put back: {}", error.what());
    }
  }

 private:
  parallel::ParallelModel& model_;
  bool are_put_;
};

}  // namespace lockstep::train
