// The main job: from a configuration to a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "config/core/config.h"
#include "train/forecast.h"
#include "train/world.h"

namespace lockstep::train {

/// Trains as `config` says, on this rank of `world`. Every rank must call, with equal
/// configurations. `resolved` is the configuration as a file, for config.yaml. Returns the exit
/// code: 0, or kExitPreempted after a signal (a checkpoint was written). `on_step` is told each
/// step as it begins, for reports of failures. `trace`, where given, is the file that a trace of
/// the run's third step goes to (of its last, where it has fewer). Throws Error.
int run_training(
    const config::Config& config,
    const std::string& resolved,
    World& world,
    const std::function<void(int64_t step)>& on_step = nullptr,
    const ForecastOptions& forecast = {},
    const std::filesystem::path& trace = {});

}  // namespace lockstep::train
