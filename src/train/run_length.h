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
  int64_t save_steps = 1;
};

/// Returns the length of the run, with the meaning of TrainingArguments: max_steps if positive,
/// otherwise num_train_epochs. If logging_steps, eval_steps or save_steps is below 1, it is a share
/// of the run and is converted to steps, rounded up. steps_per_epoch must be positive.
RunLength run_length(const config::TrainingSection& training, int64_t steps_per_epoch);

/// Returns true if an action with this strategy ("no", "steps", "epoch") is due after `step` steps.
bool is_due(std::string_view strategy, int64_t interval, int64_t step, bool epoch_ends);

/// Throws Error (kConfig) if the max_epochs of the mixture's sources do not provide enough
/// sequences for all steps.
void check_sources(const data::SamplerOptions& options, const RunLength& length);

}  // namespace lockstep::train
