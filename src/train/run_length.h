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

/// Interprets TrainingArguments: max_steps if positive, otherwise num_train_epochs. Values below 1
/// of logging_steps, eval_steps and save_steps are shares of the run and become steps, rounded up.
/// steps_per_epoch must be positive.
RunLength run_length(const config::TrainingSection& training, int64_t steps_per_epoch);

/// Returns true if an action with this strategy ("no", "steps", "epoch") is due after `step` steps.
bool is_due(std::string_view strategy, int64_t interval, int64_t step, bool epoch_ends);

/// Throws Error (kConfig) if a mixture's max_epochs limit the run to fewer sequences than its steps
/// need.
void check_sources(const data::SamplerOptions& options, const RunLength& length);

}  // namespace lockstep::train
