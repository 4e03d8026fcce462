// `lockstep submit`: the file in which a cluster's engine is told of a run, from the configuration.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::start {

/// Prints the engine's file; nothing is sent anywhere. The exit code. Throws (config) where the
/// run does not fit the devices, or options are missing; (config, data) of the configuration.
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

/// The engines' names, and the file of one. Error (config) for another name.
std::span<const std::string_view> engine_names();
std::string submission_file(std::string_view engine, const Submission& submission);

}  // namespace lockstep::start
