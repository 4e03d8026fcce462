// What a run is going to take, told before it starts, and compared with what it took.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/sequences.h"
#include "model/model_config.h"
#include "train/world.h"

namespace lockstep::train {

enum class Misfit {
  kRefuse,  // what will not fit is an Error (out of memory) before anything is loaded
  kRun,     // it is a warning
};

struct ForecastOptions {
  std::filesystem::path
      cluster;  // of `lockstep calibrate`; empty: this machine's, where there is one
  Misfit misfit = Misfit::kRefuse;
};

struct Forecast {
  double step_seconds = 0;
  double bytes = 0;  // of the fullest rank, this process as it is now included
  double room = 0;   // that a rank can have
  double tokens_per_second = 0;
  std::string basis;  // where the machine's figures are from
};

/// Predicts a step of `config` with a model of this shape, whose micro-batches are of `rows` (null:
/// as long as data.sequence_length): the time of such as they are padded on average, the memory of
/// the longest. On CPUs; on GPUs where a cluster file is
/// given. Nothing where the machine is not known. Every rank must call; throws on every rank where
/// it does not fit and that is refused, with the changes that would make it fit.
std::optional<Forecast> make_forecast(
    const config::Config& config,
    const model::ModelConfig& model,
    World& world,
    const ForecastOptions& options,
    const data::SequenceView* rows = nullptr);

/// "a step 0.52 s, ..." before, and the difference after. `seconds`: of each step that was run.
std::string describe(const Forecast& forecast);
std::string compare(
    const Forecast& forecast, std::vector<double> seconds, double peak_memory_bytes);

}  // namespace lockstep::train
