// Predicts step time and memory, and compares them with the measured values.
#include "train/forecast.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/persistent_memory.h"
#include "config/core/unsupported_keys.h"
#include "data/row_lengths.h"
#include "monitor/memory.h"
#include "monitor/progress.h"
#include "ops/host_memory.h"
#include "plan/from_config/planned_job.h"
#include "plan/machines/error_bars.h"
#include "plan/remedies.h"
#include "plan/search.h"
#include "train/machine/machine.h"
#include "train/machine/warm_up.h"
#include "train/plan.h"

namespace lockstep::train {
namespace {

// Bytes of code and buffers that a CPU process loads during its first step, in addition to those
// that warm_up() loads: saving, logging, data loading, and workspaces of larger products.
constexpr double kLoadedWithTheFirstStep = 6e6;

/// Number and device of the ranks to predict.
struct RankCounts {
  int size = 1, local_size = 1;
  bool on_cpu = true;
};

RankCounts rank_counts(const RankContext& rank_context) {
  return {rank_context.size(), rank_context.local_size, rank_context.device.is_cpu()};
}

struct Machine {
  plan::Cluster cluster;
  std::string basis;  // source of the figures; empty: not measured
};

std::optional<Machine> find_machine(const RankCounts& ranks, const ForecastOptions& options) {
  if (!options.cluster.empty()) {
    return Machine{plan::read_cluster(options.cluster), options.cluster.string()};
  }
  if (!ranks.on_cpu) {
    return std::nullopt;
  }
  const std::filesystem::path file = machine_file(ranks.size);
  std::error_code missing;
  if (std::filesystem::exists(file, missing)) {
    try {
      return Machine{plan::read_cluster(file), file.string()};
    } catch (const Error& error) {
      // The user did not name this file, so an error in it must not end the run.
      log_warning(
          "{} is ignored: {} Run `lockstep calibrate` to write it again",
          file.string(),
          error.message());
    }
  }
  return Machine{plan::uniform_cluster(plan::find_device("cpu"), ranks.size), ""};
}

// Returns true if every "key=value" of the change is supported by the trainer.
bool is_built(const std::string& change) {
  std::istringstream words(change);
  for (std::string word; words >> word;) {
    const std::string key = word.substr(0, word.find('='));
    if (config::find_rule(config::unsupported_keys(), key) != nullptr) {
      return false;
    }
  }
  return true;
}

[[noreturn]] void refuse(
    const Forecast& forecast, const plan::Job& job, const plan::Cluster& cluster) {
  std::string remedy = "use --force to start anyway";
  for (const plan::Remedy& change : plan::remedies(job, cluster)) {
    if (change.fits && is_built(change.change)) {
      remedy = fmt::format(
          "{} needs {} a rank; {}",
          change.change,
          monitor::format_bytes(static_cast<int64_t>(change.bytes)),
          remedy);
      break;
    }
  }
  throw Error(
      ErrorKind::kOutOfMemory,
      fmt::format(
          "a rank needs about {}, but {} is available",
          monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
          monitor::format_bytes(static_cast<int64_t>(forecast.room))),
      remedy);
}

plan::Job with_lengths(plan::Job job, const data::RowLengths& lengths) {
  job.split = plan::split_layers(job);  // uses the configured lengths
  job.sequence = std::max<int64_t>(2, std::llround(lengths.tokens));
  job.source = job.source > 0 ? std::max<int64_t>(1, std::llround(lengths.source)) : 0;
  return job;
}

Forecast predict(
    const config::Config& config,
    const model::ModelConfig& model,
    const RankCounts& ranks,
    const Machine& machine,
    Misfit misfit,
    const data::SequenceView* rows) {
  plan::Job job = plan::planned_job(config, model, ranks.size, ranks.local_size);
  plan::Cluster cluster = machine.cluster;
  if (ranks.on_cpu) {
    const monitor::ProcessMemory before = monitor::process_memory();
    const bool is_alike =
        warm_up(model, compute_type(config.training), job.micro_batch, job.data_length());
    const monitor::ProcessMemory after = monitor::process_memory();
    const int64_t kept = ops::host_memory().kept;  // reserved for the model, so available to it
    const int64_t made =
        std::max<int64_t>(after.anonymous_bytes - before.anonymous_bytes - kept, 0);
    const auto resident = static_cast<double>(after.resident_bytes);
    const auto loaded = static_cast<double>(after.resident_bytes - kept + (is_alike ? 0 : made));
    const auto available = static_cast<double>(monitor::available_memory());
    plan::run_on_cpu(job.software, config.training);
    job.software.threads = at::get_num_threads();
    job.software.context_bytes = loaded + kLoadedWithTheFirstStep;
    plan::Device& device = cluster.groups.front().device;
    if (ranks.size == ranks.local_size) {
      cluster.groups.front().devices_per_node = ranks.size;
    }
    if (available > 0) {
      device.memory_bytes = resident + available / std::max(ranks.local_size, 1) +
                            static_cast<double>(kept_bytes(persistent_memory()));
    }
  }
  plan::Job usual = job;
  if (rows != nullptr && rows->size() > 0) {
    const data::PaddedLengths lengths = data::padded_lengths(*rows, job.micro_batch);
    usual = with_lengths(job, lengths.expected);
    job = with_lengths(job, lengths.longest);
  }
  Forecast forecast;
  if (!machine.basis.empty()) {
    const plan::Step step = plan::simulate(usual, cluster);
    const plan::Step bound = plan::simulate(usual, plan::at_roofline(cluster));
    forecast.speed = Forecast::Speed{
        step.step_seconds,
        step.tokens_per_second,
        bound.step_seconds,
        machine.basis,
        plan::text_of(plan::time_error_bars(cluster))};
  }
  const plan::Memory memory = plan::largest(plan::estimate_memory(job)).peak;
  forecast.bytes = memory.total();
  forecast.kinds = {
      {"parameters", memory.parameters},
      {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},
      {"activations", memory.activations + memory.working + memory.logits},
      {"gathered", memory.gathered},
      {"buffers", memory.buckets},
      {"other", memory.fragmentation + memory.context + memory.kept}};
  forecast.room = plan::usable_bytes(cluster.slowest().device);
  if (memory.least() > forecast.room) {
    if (misfit == Misfit::kRefuse) {
      refuse(forecast, job, cluster);
    }
    log_warning(
        "a rank needs about {}, but {} is available",
        monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
        monitor::format_bytes(static_cast<int64_t>(forecast.room)));
  }
  return forecast;
}

}  // namespace

std::optional<Forecast> make_forecast(
    const config::Config& config,
    const model::ModelConfig& model,
    RankContext& rank_context,
    const ForecastOptions& options,
    const data::SequenceView* rows) {
  std::optional<Forecast> forecast;
  on_first_rank(rank_context.communicator, [&] {
    const RankCounts ranks = rank_counts(rank_context);
    if (const std::optional<Machine> machine = find_machine(ranks, options)) {
      forecast = predict(config, model, ranks, *machine, options.misfit, rows);
    }
    return "";
  });
  return forecast;
}

std::optional<Forecast> forecast_without_ranks(
    const config::Config& config, const model::ModelConfig& model, int ranks) {
  const RankCounts counts{ranks, ranks, config.training.use_cpu || visible_gpus() == 0};
  const std::optional<Machine> machine = find_machine(counts, {});
  return machine ? std::optional(predict(config, model, counts, *machine, Misfit::kRun, nullptr))
                 : std::nullopt;
}

std::string describe(const Forecast& forecast) {
  const std::string memory = fmt::format(
      "predicted memory: {} per rank ({} free)",
      monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
      monitor::format_bytes(static_cast<int64_t>(forecast.room)));
  if (!forecast.speed) {
    return memory;
  }
  return fmt::format(
      "{}; predicted time: {:.3g} s per step ({}), {:.0f} tokens/s (figures: {})",
      memory,
      forecast.speed->step_seconds,
      forecast.speed->error_bars,
      forecast.speed->tokens_per_second,
      forecast.speed->basis);
}

double typical_seconds(std::vector<double> seconds) {
  if (seconds.size() > 2) {
    seconds.erase(seconds.begin());  // skip the first step, which allocates buffers
  }
  if (seconds.empty()) {
    return 0;
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::string compare(const Forecast& forecast, double step_seconds, double peak_memory_bytes) {
  std::string time;
  if (forecast.speed) {
    const double predicted = forecast.speed->step_seconds;
    time = fmt::format(
        "predicted {:.3g} s per step, measured {:.3g} s ({:+.1f}%); ",
        predicted,
        step_seconds,
        100 * (predicted / step_seconds - 1));
  }
  return fmt::format(
      "{}predicted {} per rank, measured {} ({:+.1f}%)",
      time,
      monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
      monitor::format_bytes(static_cast<int64_t>(peak_memory_bytes)),
      100 * (forecast.bytes / peak_memory_bytes - 1));
}

}  // namespace lockstep::train
