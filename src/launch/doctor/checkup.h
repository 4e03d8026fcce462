// Checks of this machine for problems that affect jobs, as a table: `lockstep doctor`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// One line of the table.
struct Finding {
  enum class State { kGood, kWarning, kBroken } state = State::kGood;
  std::string what;    // "shared memory"
  std::string value;   // "64 MiB free in /dev/shm"
  std::string remedy;  // if the result is not good
};

/// Checks cores, memory, GPUs with driver and links, NCCL, /dev/shm, limits, the host name, a free
/// port, and the disk of `output`. Takes a few seconds; never throws because of a finding.
std::vector<Finding> examine_machine(
    const Environment& environment, const std::filesystem::path& output);

/// Single checks with their inputs as arguments, so that tests can make them fail.
Finding judge_shared_memory(double free_bytes);
Finding judge_open_files(double limit);
Finding judge_disk(const std::filesystem::path& folder);
Finding judge_bandwidth(int ranks, double all_reduce, double expected);  // bytes/s
Finding judge_clocks(double largest_seconds, int nodes);

/// Formats the findings, one per line, with hints below those that need one.
std::string table_of(const std::vector<Finding>& findings);
/// Returns 0, or 3 if something is broken.
int exit_code_of(const std::vector<Finding>& findings);

}  // namespace lockstep::launch
