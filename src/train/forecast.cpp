#include "train/forecast.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/cache_folder.h"
#include "config/effects.h"
#include "data/row_lengths.h"
#include "monitor/memory.h"
#include "monitor/progress.h"
#include "plan/remedies.h"
#include "plan/search.h"
#include "train/plan.h"
#include "train/planned_job.h"

namespace lockstep::train {
namespace {

constexpr double kLoadedWithTheFirstStep = 25e6;  // bytes of libraries' code and buffers, on a CPU
// The same of the library that computes attention with a bias of its scores, which our loops do
// not.
constexpr double kLoadedForScores16 = 28e6, kLoadedForScores32 = 13e6;

struct Machine {
  plan::Cluster cluster;
  std::string basis;
};

std::optional<Machine> find_machine(const World& world, const ForecastOptions& options) {
  if (!options.cluster.empty()) {
    return Machine{plan::read_cluster(options.cluster), options.cluster.string()};
  }
  if (!world.device.is_cpu()) {
    return std::nullopt;
  }
  const std::filesystem::path file = config::machine_file();
  std::error_code missing;
  if (std::filesystem::exists(file, missing)) {
    try {
      return Machine{plan::read_cluster(file), file.string()};
    } catch (const Error& error) {
      // Nobody asked for it: a run does not end because of it.
      log_warning(
          "{} is not used: {} `lockstep calibrate` writes it anew", file.string(), error.message());
    }
  }
  return Machine{
      plan::uniform_cluster(plan::find_device("cpu"), world.size()),
      "another machine's: `lockstep calibrate` measures this one"};
}

// Whether every "key=value" of a change is something that the trainer can do.
bool is_built(const std::string& change) {
  std::istringstream words(change);
  for (std::string word; words >> word;) {
    const std::string key = word.substr(0, word.find('='));
    for (const config::NotBuiltYet& entry : config::not_built_yet()) {
      if (entry.key == key) {
        return false;
      }
    }
  }
  return true;
}

[[noreturn]] void refuse(
    const Forecast& forecast, const plan::Job& job, const plan::Cluster& cluster) {
  std::string remedy = "with --force it starts all the same";
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
          "a rank will need about {}, and can have {}",
          monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
          monitor::format_bytes(static_cast<int64_t>(forecast.room))),
      remedy);
}

plan::Job with_lengths(plan::Job job, const data::RowLengths& lengths) {
  job.split = plan::split_layers(job);  // of the lengths that were asked for
  job.sequence = std::max<int64_t>(2, std::llround(lengths.tokens));
  job.source = job.source > 0 ? std::max<int64_t>(1, std::llround(lengths.source)) : 0;
  return job;
}

Forecast predict(
    const config::Config& config,
    const model::ModelConfig& model,
    const World& world,
    const Machine& machine,
    Misfit misfit,
    const data::SequenceView* rows) {
  plan::Job job = planned_job(config, model, world.size(), world.local_size);
  plan::Cluster cluster = machine.cluster;
  if (world.device.is_cpu()) {
    const auto resident = static_cast<double>(monitor::process_memory().resident_bytes);
    const auto available = static_cast<double>(monitor::available_memory());
    run_on_cpu(job.software, compute_type(config.training));
    job.software.threads = at::get_num_threads();
    job.software.context_bytes = resident + kLoadedWithTheFirstStep;
    if (plan::has_score_bias(model)) {
      job.software.context_bytes +=
          job.precision == plan::Precision::kFloat32 ? kLoadedForScores32 : kLoadedForScores16;
    }
    plan::Device& device = cluster.groups.front().device;
    if (world.size() == world.local_size) {
      cluster.groups.front().devices_per_node = world.size();
    }
    if (available > 0) {
      device.memory_bytes = resident + available / std::max(world.local_size, 1);
    }
  }
  plan::Job usual = job;
  if (rows != nullptr && rows->size() > 0) {
    const data::PaddedLengths lengths = data::padded_lengths(*rows, job.micro_batch);
    usual = with_lengths(job, lengths.expected);
    job = with_lengths(job, lengths.longest);
  }
  Forecast forecast;
  const plan::Step step = plan::simulate(usual, cluster);
  const plan::Memory memory = plan::largest(plan::estimate_memory(job)).peak;
  forecast.step_seconds = step.step_seconds;
  forecast.tokens_per_second = step.tokens_per_second;
  forecast.bytes = memory.total();
  forecast.room = plan::usable_bytes(cluster.slowest().device);
  forecast.basis = machine.basis;
  if (memory.least() > forecast.room) {
    if (misfit == Misfit::kRefuse) {
      refuse(forecast, job, cluster);
    }
    log_warning(
        "a rank will need about {}, and can have {}",
        monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
        monitor::format_bytes(static_cast<int64_t>(forecast.room)));
  }
  return forecast;
}

}  // namespace

std::optional<Forecast> make_forecast(
    const config::Config& config,
    const model::ModelConfig& model,
    World& world,
    const ForecastOptions& options,
    const data::SequenceView* rows) {
  std::optional<Forecast> forecast;
  on_first_rank(world.communicator, [&] {
    if (const std::optional<Machine> machine = find_machine(world, options)) {
      forecast = predict(config, model, world, *machine, options.misfit, rows);
    }
    return "";
  });
  return forecast;
}

std::string describe(const Forecast& forecast) {
  return fmt::format(
      "predicted: {:.3g} s a step, {:.0f} tokens/s, {} a rank of {} (figures: {})",
      forecast.step_seconds,
      forecast.tokens_per_second,
      monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
      monitor::format_bytes(static_cast<int64_t>(forecast.room)),
      forecast.basis);
}

std::string compare(
    const Forecast& forecast, std::vector<double> seconds, double peak_memory_bytes) {
  if (seconds.size() > 2) {
    seconds.erase(seconds.begin());  // the first step sets buffers up
  }
  if (seconds.empty()) {
    return "";
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return fmt::format(
      "predicted {:.3g} s a step, measured {:.3g} s ({:+.1f}%); predicted {} a rank, measured {} "
      "({:+.1f}%)",
      forecast.step_seconds,
      *middle,
      100 * (forecast.step_seconds / *middle - 1),
      monitor::format_bytes(static_cast<int64_t>(forecast.bytes)),
      monitor::format_bytes(static_cast<int64_t>(peak_memory_bytes)),
      100 * (forecast.bytes / peak_memory_bytes - 1));
}

}  // namespace lockstep::train
