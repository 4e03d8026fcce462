// Starts a command's ranks, from a launcher's variables or --nproc.
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
  std::vector<std::string> arguments;  // the user's arguments, passed to each rank
  std::optional<int64_t> ranks;        // --nproc; nullopt: one per visible GPU, otherwise one
  bool use_cpu = false;
  bool in_process = false;  // ranks are threads of this process
  std::chrono::seconds timeout = std::chrono::seconds(1800);
  bool shared_memory = true;  // use shared memory between CPU ranks of one machine; otherwise Gloo
};

/// Under a launcher, or for a single rank: runs `body` as this rank. Otherwise starts the ranks,
/// each as this program with the same arguments, and supervises them; or, in one process, runs
/// `body` on a thread for each. Returns the exit code.
int run_ranks(const RankOptions& options, const std::function<int(train::RankContext&)>& body);

/// Starts `ranks` ranks, each as this program with these arguments and with `environment` added to
/// this process's, and supervises them until all have ended. Returns the job's exit code.
int start_ranks(
    const std::string& command,
    const std::vector<std::string>& arguments,
    int ranks,
    const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep::cli
