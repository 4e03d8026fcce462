// Starts the ranks of a command as described by a launcher's environment variables or by --nproc.
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
  std::vector<std::string> arguments;  // arguments of the user, passed to each rank
  std::optional<int64_t> ranks;        // --nproc; nullopt: one per visible GPU, or one without GPUs
  bool use_cpu = false;
  bool in_process = false;  // ranks are threads of this process
  std::chrono::seconds timeout = std::chrono::seconds(1800);
  bool shared_memory = true;  // use shared memory between CPU ranks of one machine; otherwise Gloo
};

/// Under a launcher, or for a single rank, runs `body` as this rank. Otherwise starts copies of
/// this program as ranks, with the same arguments, and supervises them. With in_process, runs
/// `body` on one thread per rank instead. Returns the exit code.
int run_ranks(const RankOptions& options, const std::function<int(train::RankContext&)>& body);

/// Starts `ranks` copies of this program as ranks, with the given command and arguments. Each
/// inherits this process's environment plus `environment`. Returns the job's exit code when all
/// have ended.
int start_ranks(
    const std::string& command,
    const std::vector<std::string>& arguments,
    int ranks,
    const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep::cli
