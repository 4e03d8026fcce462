// What may hurt a job on this machine, as a table: `lockstep doctor`.
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
  std::string remedy;  // where it is not good
};

/// Looks at this machine: cores, memory, GPUs with driver and links, NCCL, /dev/shm, limits, its
/// own name, a free port, and the disk of `output`. Takes a few seconds; never throws for what it
/// finds.
std::vector<Finding> examine_machine(
    const Environment& environment, const std::filesystem::path& output);

/// Single checks, each with what it looked at given, so that tests can break it.
Finding judge_shared_memory(double free_bytes);
Finding judge_open_files(double limit);
Finding judge_disk(const std::filesystem::path& folder);
Finding judge_bandwidth(int ranks, double all_reduce, double expected);  // bytes/s
Finding judge_clocks(double largest_seconds, int nodes);

/// The table as text, one line a finding, with remedies below those that need one.
std::string table_of(const std::vector<Finding>& findings);
/// 0, or 3 where something is broken.
int exit_code_of(const std::vector<Finding>& findings);

}  // namespace lockstep::launch
