// From a launcher's variables, or --nproc, to the ranks of a command.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/machine/rank_context.h"

namespace lockstep::cli {

struct RankOptions {
  std::string command;                 // "train"
  std::vector<std::string> arguments;  // as the user gave them: each rank gets the same
  std::optional<int64_t> ranks;        // --nproc; nothing: every visible GPU, else one
  bool use_cpu = false;
  bool in_process = false;  // ranks are threads of this process
  std::chrono::seconds timeout = std::chrono::seconds(1800);
  bool shared_memory = true;  // between ranks of one machine, on CPUs; else Gloo
};

/// Under a launcher, or alone where one rank is wanted: runs `body` as this rank. Else starts the
/// ranks, each as this program with the same arguments, and watches them; or, in one process, runs
/// `body` on a thread for each. Returns the exit code.
int run_ranks(const RankOptions& options, const std::function<int(train::RankContext&)>& body);

/// Starts `ranks` ranks, each as this program with these words and with `environment` added to this
/// process's, and watches them until all have ended. Returns the job's exit code.
int start_ranks(
    const std::string& command,
    const std::vector<std::string>& arguments,
    int ranks,
    const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep::cli
