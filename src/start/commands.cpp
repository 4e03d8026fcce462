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
      {"train", "Train or fine-tune a model, on any number of ranks", begin_train},
      {"unlearn", "Make a model forget some rows and keep others", begin_unlearn},
      {"eval", "Loss and accuracy of a model on a text; of a classifier, its report", in_core},
      {"predict", "The label of each row, by a classifier", in_core},
      {"generate", "Continue a prompt", in_core},
      {"export", "A model, also with an adapter, as a folder or a GGUF file", in_core},
      {"tokenizer", "Train a tokenizer", here<run_tokenizer>},
      {"tokenize", "Text to token ids", here<run_tokenize>},
      {"data", "Show documents as training reads them, and what of them is learned", in_core},
      {"sample", "Write a sample corpus to try things on", here<run_sample>},
      {"launch",
       "Start any program as ranks: torchrun, accelerate and deepspeed's words",
       here<launch::run_command>},
      {"submit", "Print the file of SLURM, Kubernetes, Ray or ssh for a run", here<run_submit>},
      {"runs", "The runs below a folder, and how they ended", here<run_runs>},
      {"compare",
       "What two runs differ in: configuration, data, program, curves",
       here<run_compare>},
      {"sync", "Send what the server of a tracker did not get of a run", here<run_sync>},
      {"ctl", "Ask a run how it is, or to save, stop, evaluate, ...", here<run_ctl>},
      {"replay", "A step of a run once more, from a checkpoint before it", in_core},
      {"monitor", "A page of runs, in a browser on this machine", here<run_monitor>},
      {"verify", "Check that a plan reproduces one rank's losses and gradients", in_core},
      {"doctor", "Check this machine for problems that break training jobs", in_core},
      {"selftest", "Check that this machine computes what it should, in a minute", in_core},
      {"estimate",
       "Memory of each rank, what fits, and what would make it fit",
       here<run_estimate>},
      {"plan", "The fastest way to split a model over a cluster, and why", here<run_plan>},
      {"calibrate", "Measure this machine for the planner", in_core},
      {"bench",
       "Plans side by side on this machine: ZeRO's stages, threads and processes",
       in_core},
      {"schedule", "Draw and check a pipeline schedule", in_core},
  };
  return kCommands;
}

}  // namespace lockstep::start
