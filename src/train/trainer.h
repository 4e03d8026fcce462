// The main job: from a configuration to a trained model.
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
  /// Told each step as it begins, for reports of failures.
  std::function<void(int64_t step)> on_step{};
  ForecastOptions forecast{};
  /// The file that a trace of the run's third step goes to (of its last, where it has fewer).
  std::filesystem::path trace{};
  /// Where the configuration's values came from, for the run's record.
  config::Origins origins{};
  /// The run ends after this step as if it had been stopped, though its schedule goes on
  /// (lockstep replay); 0: where its length ends.
  int64_t last_step = 0;
};

/// Trains as `config` says, on this rank of `world`. Every rank must call, with equal
/// configurations. `resolved` is the configuration as a file, for config.yaml. Returns the exit
/// code: 0, or kExitPreempted after a signal (a checkpoint was written). Throws Error.
int run_training(
    const config::Config& config,
    const std::string& resolved,
    RankContext& rank_context,
    const RunOptions& options = {});

}  // namespace lockstep::train
