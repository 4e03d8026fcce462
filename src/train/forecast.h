// What a run is going to take, told before it starts, and compared with what it took.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/core/config.h"
#include "data/sequences.h"
#include "model/model_config.h"
#include "train/machine/rank_context.h"

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
  /// Where the machine was measured or is described: the basis says which.
  struct Speed {
    double step_seconds = 0, tokens_per_second = 0;
    double roofline_seconds = 0;  // of a step with every kernel and message at the machine's peak
    std::string basis;
    std::string error_bars{};  // of the time: "-9% +14%"
  };
  std::optional<Speed> speed;
  double bytes = 0;  // of the fullest rank, this process as it is now included
  double room = 0;   // that a rank can have
  /// The bytes by kind, as parallel::MemoryByKind has them; "other" is what is not of tensors too.
  std::vector<std::pair<std::string, double>> kinds;
};

/// Predicts a step of `config` with a model of this shape, whose micro-batches are of `rows` (null:
/// as long as data.sequence_length): the time of such as they are padded on average, the memory of
/// the longest. On CPUs, whose step time is predicted where a run or `lockstep calibrate` has
/// measured them with as many ranks and threads (machine_file()); on GPUs where a cluster file is
/// given, else nothing. The first rank computes a step of a small model of the family, so that what
/// libraries load and make for this processor is in the memory that it has. Every rank must call;
/// throws on every rank where it does not fit and that is refused, with the changes that would make
/// it fit.
std::optional<Forecast> make_forecast(
    const config::Config& config,
    const model::ModelConfig& model,
    RankContext& rank_context,
    const ForecastOptions& options,
    const data::SequenceView* rows = nullptr);

/// "predicted: 0.52 s a step, ..." before, and the difference after. `seconds`: of each step that
/// was run.
std::string describe(const Forecast& forecast);
std::string compare(
    const Forecast& forecast, std::vector<double> seconds, double peak_memory_bytes);

}  // namespace lockstep::train
