// Prediction of a run's step time and memory, and its comparison with the measured values.
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
  kRefuse,  // throw Error (out of memory) before anything is loaded
  kRun,     // log a warning
};

struct ForecastOptions {
  std::filesystem::path
      cluster;  // file of `lockstep calibrate`; empty: this machine's file, if any
  Misfit misfit = Misfit::kRefuse;
};

struct Forecast {
  /// Only set if the machine has been measured or described. `basis` names the source of the
  /// figures.
  struct Speed {
    double step_seconds = 0, tokens_per_second = 0;
    double roofline_seconds = 0;  // step time with every kernel and message at peak rate
    std::string basis;
    std::string error_bars{};  // of the step time: "-9% +14%"
  };
  std::optional<Speed> speed;
  /// Peak of the rank that uses most memory, including the current memory of this process.
  double bytes = 0;
  double room = 0;  // bytes available to a rank
  /// Bytes by kind, as in parallel::MemoryByKind. "other" includes memory that is not in tensors.
  std::vector<std::pair<std::string, double>> kinds;
};

/// Predicts a step of `config` with a model of this shape. With `rows`, the time is predicted for
/// the average padded length of their micro-batches and the memory for the longest one. Without
/// `rows`, all rows have data.sequence_length tokens.
///
/// On CPUs, the step time is predicted if an earlier run or `lockstep calibrate` has measured the
/// machine with the same number of ranks and threads (machine_file()). On GPUs, it is predicted
/// only with a cluster file. Rank 0 computes a step of a small model of the same family first, so
/// that its memory includes the code that libraries load and generate for this processor.
///
/// If the run does not fit and `options.misfit` is kRefuse, throws on every rank and suggests
/// changes to the configuration. Must be called on every rank.
std::optional<Forecast> make_forecast(
    const config::Config& config,
    const model::ModelConfig& model,
    RankContext& rank_context,
    const ForecastOptions& options,
    const data::SequenceView* rows = nullptr);

/// Predicts a step of `ranks` ranks on this machine before any rank is started, as make_forecast()
/// does without rows. A run that does not fit only causes a warning.
std::optional<Forecast> forecast_without_ranks(
    const config::Config& config, const model::ModelConfig& model, int ranks);

/// Returns "predicted memory: 192 MiB per rank (21.3 GiB free)", and the predicted time, if any.
std::string describe(const Forecast& forecast);
/// Returns the median of the steps' times, without the first step of several; 0 if there is none.
double typical_seconds(std::vector<double> seconds);
/// Returns the prediction next to the measured values.
std::string compare(const Forecast& forecast, double step_seconds, double peak_memory_bytes);

}  // namespace lockstep::train
