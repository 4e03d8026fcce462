// `lockstep submit`: creates a job file for a cluster engine from the configuration.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::start {

/// Prints the engine's job file. With --send, writes it to the current folder and executes the
/// engine's command. Returns the exit code. Throws Error (config) if the run does not fit the
/// devices or options are missing, Error (config, data) if the configuration is invalid, and Error
/// (environment) if the engine's command is missing.
int run_submit(std::vector<std::string> arguments);

/// Description of a run for an engine.
struct Submission {
  std::string name = "lockstep";
  std::vector<std::string> training;  // arguments of `lockstep train`, such as -c job.yaml seed=1
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  bool on_gpus = true;          // one GPU per rank; if false, ranks use cores
  int64_t cpus_per_node = 1;    // all ranks of a node together
  int64_t memory_per_node = 1;  // GiB of host memory
  std::string time = "24:00:00";
  std::string image = "lockstep:1";
  std::vector<std::string> hosts = {};  // for ssh
  std::string predicted = {};           // line with the planner's prediction
};

/// Cluster engine.
struct Engine {
  std::string_view name;
  std::string_view extension;                  // of its job file, such as ".sbatch"
  std::array<const char*, 8> command;          // submits the file, whose name is appended
  std::string (*file)(const Submission& run);  // returns the content of the job file
};
std::vector<std::string> engine_names();
/// Throws Error (config) if the name is unknown.
const Engine& find_engine(std::string_view name);

/// Returns the content of deploy/ray/driver.py.
std::string_view ray_driver();

}  // namespace lockstep::start
