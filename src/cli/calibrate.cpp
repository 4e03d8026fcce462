// Measures this machine for the planner.
#include "cli/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "cli/rank_context.h"
#include "plan/machine.h"
#include "plan/simulate.h"
#include "start/parse.h"
#include "train/machine/machine.h"

namespace lockstep::cli {

namespace {

struct CalibrateOptions {
  std::string write;
  std::optional<int64_t> ranks;
  double seconds = 0.2;
};

void print_products(const char* type, const std::vector<plan::ProductSample>& samples) {
  std::cout << fmt::format("products in {}\n", type);
  for (const plan::ProductSample& s : samples) {
    std::cout << fmt::format(
        "  [{:>4}, {:>4}] x [{:>4}, {:>4}]  {:8.1f} GFLOP/s\n",
        s.m,
        s.k,
        s.k,
        s.n,
        2 * s.m * s.n * s.k / s.seconds / 1e9);
  }
}

// Prints the measured times next to those computed from the fitted rates.
void print(const plan::MachineSamples& samples, const plan::NodeGroup& node) {
  print_products("float32", samples.products32);
  print_products("bfloat16", samples.products16);
  std::cout << fmt::format(
      "memory: {:.1f} GB/s copied, {:.1f} GB/s by the optimizer\n",
      samples.copy_bandwidth / 1e9,
      samples.update_bandwidth / 1e9);
  std::cout << "passes of small models, forward and backward\n";
  const plan::Cluster cluster{.groups = {node}, .physics = plan::calibration().physics};
  double worst = 0;
  for (const plan::PassSample& pass : samples.passes) {
    plan::Job job = pass.job;
    const plan::Step step = plan::simulate(job, cluster);
    const double seconds = step.step_seconds - step.optimizer - step.rest;
    worst = std::max(worst, std::abs(seconds / pass.seconds - 1));
    std::cout << fmt::format(
        "  {} layers of {}, {} x {} tokens, vocabulary {}, {}: {:.2f} ms, predicted {:.2f} ms\n",
        job.model.layers,
        job.model.hidden_size,
        job.micro_batch,
        job.sequence,
        job.model.vocab_size,
        job.precision == plan::Precision::kFloat32 ? "float32" : "bfloat16",
        pass.seconds * 1e3,
        seconds * 1e3);
  }
  std::cout << fmt::format("  the largest error is {:.0f}%\n", 100 * worst);
  for (const plan::ReduceSample& s : samples.reductions) {
    std::cout << fmt::format(
        "all-reduce of {:>9.0f} bytes over {} ranks: {:.3f} ms, predicted {:.3f} ms\n",
        s.bytes,
        s.members,
        s.seconds * 1e3,
        plan::all_reduce_seconds(cluster, node, {s.members, s.members}, s.bytes) * 1e3);
  }
}

int measure(const CalibrateOptions& options, train::RankContext& rank_context) {
  const plan::MachineSamples samples =
      train::measure_machine(rank_context.communicator, options.seconds);
  if (!rank_context.is_first()) {
    return 0;
  }
  const plan::NodeGroup node = plan::fit_machine(samples);
  print(samples, node);
  const std::filesystem::path file = options.write.empty()
                                         ? train::machine_file(rank_context.size())
                                         : std::filesystem::path(options.write);
  train::write_machine(samples, file, "`lockstep calibrate`");
  std::cout << "written: " << file.string() << "\n";
  return 0;
}

}  // namespace

int run_calibrate(std::vector<std::string> arguments) {
  CalibrateOptions options;
  CLI::App app(
      "Measure this machine (matrix products, memory, passes of small models, all-reduces) with "
      "the number of ranks to be used for training, and write a cluster file: `lockstep train` "
      "reads the default one, `lockstep plan --cluster` any.",
      "lockstep calibrate");
  app.add_option("--nproc", options.ranks, "Ranks that measure at the same time. int; default: 1")
      ->check(CLI::Range(1, 4096));
  app.add_option("--write", options.write, "File to write. path; default: the user's cluster file");
  app.add_option("--seconds", options.seconds, "Seconds per measurement. float")
      ->capture_default_str()
      ->check(start::between(1e-3, 60));
  if (start::parse(app, arguments) == start::Parsed::kHelpShown) {
    return 0;
  }
  RankOptions ranks;
  ranks.command = "calibrate";
  ranks.arguments = std::move(arguments);
  ranks.ranks = options.ranks.value_or(1);
  ranks.use_cpu = true;
  return run_ranks(
      ranks, [&](train::RankContext& rank_context) { return measure(options, rank_context); });
}

}  // namespace lockstep::cli
