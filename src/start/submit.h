// `lockstep submit`: the file in which a cluster's engine is told of a run, from the configuration.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::start {

/// Prints the engine's file, and nothing is sent anywhere; with --send it is written to the current
/// folder, and this process becomes the engine's own command. The exit code. Throws (config) where
/// the run does not fit the devices, or options are missing; (config, data) of the configuration;
/// (environment) where the engine's command is not here.
int run_submit(std::vector<std::string> arguments);

/// What an engine has to know of a run.
struct Submission {
  std::string name = "lockstep";
  std::vector<std::string> training;  // the words after `lockstep train`: -c job.yaml seed=1
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  bool on_gpus = true;          // a GPU for each rank; else cores
  int64_t cpus_per_node = 1;    // cores that the ranks of a node share
  int64_t memory_per_node = 1;  // GiB of host memory
  std::string time = "24:00:00";
  std::string image = "lockstep:1";
  std::vector<std::string> hosts = {};  // of ssh
  std::string predicted = {};           // a line of what the planner says
};

/// What starts a run on a cluster.
struct Engine {
  std::string_view name;
  std::string_view extension;                  // of its file: ".sbatch"
  std::array<const char*, 8> command;          // what sends it, the file's name behind it
  std::string (*file)(const Submission& run);  // its text
};
std::vector<std::string> engine_names();
/// Error (config) for another name.
const Engine& find_engine(std::string_view name);

/// deploy/ray/driver.py.
std::string_view ray_driver();

}  // namespace lockstep::start
