// Reports saves after their commit.
#include "train/committed_saves.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "monitor/monitor.h"
#include "train/checkpointing.h"

namespace lockstep::train {

void CommittedSaves::end_save(double waited_s, bool goes_on) {
  report();  // save_training_state() has waited for the save before this one
  const Save save{
      job_.progress.step,
      waited_s,
      job_.monitor != nullptr ? job_.monitor->seconds_in_steps() : 0,
      goes_on && job_.saver != nullptr};
  if (save.in_background) {
    saving_ = save;
  } else {
    record(save);
  }
}

void CommittedSaves::poll() {
  if (saving_ && job_.saver->committed()) {
    report();
  }
}

void CommittedSaves::wait() {
  if (saving_) {
    wait_for_save(job_);
    report();
  }
}

void CommittedSaves::report() {
  if (saving_) {
    record(*saving_);
    steering_.end_save(saving_->step);
    saving_.reset();
  }
}

void CommittedSaves::record(const Save& save) {
  if (job_.monitor != nullptr) {
    job_.monitor->event(
        "saved",
        {{"checkpoint", fmt::format("checkpoint-{}", save.step)},
         {"waited_s", save.waited_s},
         {"in_background", save.in_background},
         {"step", save.step},
         {"in_steps_s", save.in_steps_s}});
  }
}

}  // namespace lockstep::train
