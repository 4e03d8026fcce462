// `lockstep submit`: creates a cluster engine's job file from the configuration.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::start {

/// Prints the engine's file without sending it; with --send writes it to the current folder and
/// executes the engine's command. Returns the exit code. Throws Error (config) if the run does not
/// fit the devices or options are missing; (config, data) for the configuration; (environment) if
/// the engine's command is missing.
int run_submit(std::vector<std::string> arguments);

/// Description of a run for an engine.
struct Submission {
  std::string name = "lockstep";
  std::vector<std::string> training;  // arguments of `lockstep train`: -c job.yaml seed=1
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  bool on_gpus = true;          // one GPU per rank; otherwise cores
  int64_t cpus_per_node = 1;    // cores shared by the ranks of a node
  int64_t memory_per_node = 1;  // GiB of host memory
  std::string time = "24:00:00";
  std::string image = "lockstep:1";
  std::vector<std::string> hosts = {};  // for ssh
  std::string predicted = {};           // a line with the planner's prediction
};

/// A cluster engine.
struct Engine {
  std::string_view name;
  std::string_view extension;          // extension of its file: ".sbatch"
  std::array<const char*, 8> command;  // command that submits the file, whose name is appended
  std::string (*file)(const Submission& run);  // returns the content of its file
};
std::vector<std::string> engine_names();
/// Throws Error (config) for an unknown name.
const Engine& find_engine(std::string_view name);

/// Content of deploy/ray/driver.py.
std::string_view ray_driver();

}  // namespace lockstep::start
