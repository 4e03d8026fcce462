// How long a run is, and at which steps it logs, evaluates and saves.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/core/config.h"
#include "data/sampler.h"

namespace lockstep::train {

struct RunLength {
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  double epochs = 0;          // that total_steps are
  int64_t logging_steps = 1;  // whole numbers of steps, at least 1
  int64_t eval_steps = 1;
  int64_t save_steps = 1;
};

/// From TrainingArguments: max_steps where it is positive, else num_train_epochs; shares below 1 of
/// logging_steps, eval_steps and save_steps become steps, rounded up. steps_per_epoch must be
/// positive.
RunLength run_length(const config::TrainingSection& training, int64_t steps_per_epoch);

/// Whether something of a strategy ("no", "steps", "epoch") is due after `step` steps.
bool is_due(std::string_view strategy, int64_t interval, int64_t step, bool epoch_ends);

/// Error (kConfig) where a mixture's max_epochs let fewer sequences be drawn than the steps take.
void check_sources(const data::SamplerOptions& options, const RunLength& length);

}  // namespace lockstep::train
