// Table of all commands.
#include "start/commands.h"

#include "launch/frontends/command.h"
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
       here<launch::run_command>},
      {"submit", "Print or submit a job file for SLURM, Kubernetes, Ray or ssh", here<run_submit>},
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
  };
  return kCommands;
}

}  // namespace lockstep::start
