// Table of all commands.
#include "start/commands.h"

#include "base/format.h"
#include "launch/frontends/accelerate.h"
#include "launch/frontends/command.h"
#include "launch/frontends/deepspeed.h"
#include "launch/frontends/torchrun.h"
#include "start/completion.h"
#include "start/ctl.h"
#include "start/estimate.h"
#include "start/monitor.h"
#include "start/plan.h"
#include "start/runs.h"
#include "start/sample.h"
#include "start/submit.h"
#include "start/tokenize.h"
#include "start/tokenizer.h"
#include "start/train.h"

namespace lockstep::start {
namespace {

template <int (*kRun)(std::vector<std::string>)>
std::optional<int> here(const std::vector<std::string>& arguments) {
  return kRun(arguments);
}

std::optional<int> in_core(const std::vector<std::string>& /*arguments*/) {
  return std::nullopt;
}

/// Completes the launcher's own options; the words after the program belong to it.
std::optional<int> begin_launch(const std::vector<std::string>& arguments) {
  if (!asks_for_completion(arguments)) {
    return launch::run_command(arguments);
  }
  std::vector<launch::OptionSpec> options;
  for (const auto table :
       {launch::torchrun_options(), launch::accelerate_options(), launch::deepspeed_options()}) {
    options.insert(options.end(), table.begin(), table.end());
  }
  size_t at = 1;
  while (at + 1 < arguments.size() && arguments[at].starts_with("-")) {
    at += launch::takes_next_word(options, arguments[at]) ? 2 : 1;
  }
  if (at + 1 >= arguments.size()) {
    fmt::print("{}", complete(options, arguments));
  }
  return 0;
}

}  // namespace

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", "Train or fine-tune a model on any number of ranks", begin_train},
      {"unlearn", "Unlearn a forget set while preserving a retain set", begin_unlearn},
      {"eval", "Evaluate a model: loss and accuracy on text, or a classification report", in_core},
      {"predict", "Predict the label of each row with a trained classifier", in_core},
      {"generate", "Continue a prompt", in_core},
      {"export", "Export a model: merge adapters, quantize, or write GGUF", in_core},
      {"tokenizer", "Train a tokenizer", here<run_tokenizer>},
      {"tokenize", "Convert text to token ids and back", here<run_tokenize>},
      {"data", "Show documents as training reads them, with their loss mask", in_core},
      {"sample", "Write a sample corpus", here<run_sample>},
      {"launch",
       "Launch any program, with the options of torchrun, accelerate or deepspeed",
       begin_launch},
      {"submit", "Print or submit a job file for SLURM, Kubernetes, Ray or ssh", here<run_submit>},
      {"models", "List the model presets and the supported families", in_core},
      {"runs", "List the runs below a folder and how they ended", here<run_runs>},
      {"compare", "Compare two runs: configuration, data, version, curves", here<run_compare>},
      {"sync", "Upload records of a run that a tracker's server has not received", here<run_sync>},
      {"ctl", "Control a running job: status, save, stop, evaluate", here<run_ctl>},
      {"replay", "Repeat steps of a run from a checkpoint and compare them", in_core},
      {"monitor", "Serve a page of runs, or show a run in the terminal", here<run_monitor>},
      {"verify", "Verify that a plan reproduces one rank's losses and gradients", in_core},
      {"doctor", "Check this machine for problems that break training jobs", in_core},
      {"selftest", "Check that this machine computes correctly, in a minute", in_core},
      {"estimate", "Estimate the memory of each rank and how to reduce it", here<run_estimate>},
      {"plan", "Find the fastest plan for a model on a cluster", here<run_plan>},
      {"calibrate", "Measure this machine for the planner", in_core},
      {"bench", "Benchmark ZeRO stages, threads and processes on this machine", in_core},
      {"schedule", "Draw and check a pipeline schedule", in_core},
      {"completion", "Print the completion script of bash, zsh or fish", here<run_completion>},
  };
  return kCommands;
}

}  // namespace lockstep::start
