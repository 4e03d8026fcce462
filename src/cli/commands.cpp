#include "cli/commands.h"

#include "base/processor.h"
#include "cli/bench.h"
#include "cli/calibrate.h"
#include "cli/doctor.h"
#include "cli/estimate.h"
#include "cli/eval.h"
#include "cli/export.h"
#include "cli/generate.h"
#include "cli/plan.h"
#include "cli/predict.h"
#include "cli/report_error.h"
#include "cli/sample.h"
#include "cli/schedule.h"
#include "cli/selftest.h"
#include "cli/tokenize.h"
#include "cli/tokenizer.h"
#include "cli/train.h"
#include "cli/verify.h"
#include "launch/surfaces/command.h"

namespace lockstep::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", "Train or fine-tune a model, on any number of ranks", run_train},
      {"unlearn", "Make a model forget some rows and keep others", run_unlearn},
      {"eval", "Loss and accuracy of a model on a text; of a classifier, its report", run_eval},
      {"predict", "The label of each row, by a classifier", run_predict},
      {"generate", "Continue a prompt", run_generate},
      {"export", "A model and an adapter as one model", run_export},
      {"tokenizer", "Train a tokenizer", run_tokenizer},
      {"tokenize", "Text to token ids", run_tokenize},
      {"sample", "Write a sample corpus to try things on", run_sample},
      {"launch",
       "Start any program as ranks: torchrun, accelerate and deepspeed's words",
       launch::run_command},
      {"verify", "Check that a plan reproduces one rank's losses and gradients", run_verify},
      {"doctor", "Check this machine for problems that break training jobs", run_doctor},
      {"selftest", "Check that this machine computes what it should, in a minute", run_selftest},
      {"estimate", "Memory of each rank, what fits, and what would make it fit", run_estimate},
      {"plan", "The fastest way to split a model over a cluster, and why", run_plan},
      {"calibrate", "Measure this machine for the planner", run_calibrate},
      {"bench",
       "Plans side by side on this machine: ZeRO's stages, threads and processes",
       run_bench},
      {"schedule", "Draw and check a pipeline schedule", run_schedule},
  };
  return kCommands;
}

int run_command(const Command& command, const std::vector<std::string>& arguments) {
  return report_errors([&] {
    (void)instruction_set();  // a wrong LOCKSTEP_MAX_CPU_ISA is told before anything is done
    return command.run(arguments);
  });
}

}  // namespace lockstep::cli
