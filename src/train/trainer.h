// Runs a training job, from a configuration to a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "config/core/config.h"
#include "config/core/origin.h"
#include "train/forecast.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {

struct RunOptions {
  /// Called at the start of each step. Used for failure reports.
  std::function<void(int64_t step)> on_step{};
  ForecastOptions forecast{};
  /// Trace file of the run's third step, or of its last step if it has fewer.
  std::filesystem::path trace{};
  /// Origins of the configuration's values, for the run's record.
  config::Origins origins{};
  /// Stops the run after this step without changing its schedule (lockstep replay). 0: do not stop
  /// early.
  int64_t last_step = 0;
};

/// Trains on this rank as `config` specifies. Must be called on every rank with the same
/// configuration. `resolved` is the content of config.yaml. Returns the exit code: 0, or
/// kExitPreempted if a signal stopped the run and a checkpoint was written. Throws Error.
int run_training(
    const config::Config& config,
    const std::string& resolved,
    RankContext& rank_context,
    const RunOptions& options = {});

}  // namespace lockstep::train
