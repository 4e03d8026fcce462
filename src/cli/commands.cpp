// Table of the commands that need libtorch.
#include "cli/commands.h"

#include "base/processor.h"
#include "cli/bench.h"
#include "cli/calibrate.h"
#include "cli/data.h"
#include "cli/doctor.h"
#include "cli/eval.h"
#include "cli/export.h"
#include "cli/generate.h"
#include "cli/models.h"
#include "cli/predict.h"
#include "cli/replay.h"
#include "cli/report_error.h"
#include "cli/schedule.h"
#include "cli/selftest.h"
#include "cli/train.h"
#include "cli/verify.h"

namespace lockstep::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", run_train},
      {"unlearn", run_unlearn},
      {"eval", run_eval},
      {"predict", run_predict},
      {"generate", run_generate},
      {"data", run_data},
      {"export", run_export},
      {"models", run_models},
      {"replay", run_replay},
      {"verify", run_verify},
      {"doctor", run_doctor},
      {"selftest", run_selftest},
      {"calibrate", run_calibrate},
      {"bench", run_bench},
      {"schedule", run_schedule},
  };
  return kCommands;
}

int run_command(const Command& command, const std::vector<std::string>& arguments) {
  return report_errors([&] {
    (void)instruction_set();  // report an invalid LOCKSTEP_MAX_CPU_ISA first
    return command.run(arguments);
  });
}

}  // namespace lockstep::cli
