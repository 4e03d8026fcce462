// Length of a run in steps, and the steps at which it logs, evaluates and saves.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/core/config.h"
#include "data/sampler.h"

namespace lockstep::train {

struct RunLength {
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  double epochs = 0;          // total_steps in epochs
  int64_t logging_steps = 1;  // in steps, at least 1
  int64_t eval_steps = 1;
  int64_t save_steps = 1;  // 0: only after the last step
};

/// Returns the length of the run, with the meaning of TrainingArguments: max_steps if positive,
/// otherwise num_train_epochs. If logging_steps, eval_steps or save_steps is below 1, it is a share
/// of the run and is converted to steps, rounded up. steps_per_epoch must be positive.
RunLength run_length(const config::TrainingSection& training, int64_t steps_per_epoch);

/// Point of a run between two steps.
struct StepEnd {
  int64_t step = 0;         // completed steps
  bool epoch_ends = false;  // the last step of an epoch, or the run ends within an epoch
  bool run_ends = false;    // the last step of the run
};

/// Returns true if an evaluation or a save with this strategy ("no", "steps", "epoch") is due. As
/// in Hugging Face's Trainer, it is also due after the last step of the run. With an interval of 0
/// it is due only then.
bool is_due(std::string_view strategy, int64_t interval, const StepEnd& at);

/// Throws Error (kConfig) if the max_epochs of the mixture's sources do not provide enough
/// sequences for all steps.
void check_sources(const data::SamplerOptions& options, const RunLength& length);

}  // namespace lockstep::train
