// `lockstep doctor`: checks this machine for problems that affect jobs and prints a table.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// One row of the table.
struct Finding {
  enum class State { kGood, kWarning, kBroken } state = State::kGood;
  std::string what;    // "shared memory"
  std::string value;   // "64 MiB free in /dev/shm"
  std::string remedy;  // what to do; empty if the result is good
};

/// Checks cores, memory, GPUs with driver and links, NCCL, /dev/shm, limits, the host name, a free
/// port, and the disk of `output`. Takes a few seconds. Does not throw if a check fails.
std::vector<Finding> examine_machine(
    const Environment& environment, const std::filesystem::path& output);

/// Single checks. Measured values are arguments, so that tests can make the checks fail.
Finding judge_shared_memory(double free_bytes);
Finding judge_open_files(double limit);
Finding judge_disk(const std::filesystem::path& folder);
Finding judge_bandwidth(int ranks, double all_reduce, double expected);  // bytes/s
Finding judge_clocks(double largest_seconds, int nodes);

/// Formats the findings, one per line, each followed by its hint if any.
std::string table_of(const std::vector<Finding>& findings);
/// Returns 0, or 3 if a finding is kBroken.
int exit_code_of(const std::vector<Finding>& findings);

}  // namespace lockstep::launch
