// The checks of `lockstep selftest`.
#pragma once

#include <string>
#include <vector>

#include "train/machine/world.h"

namespace lockstep::cli {

struct Check {
  std::string group;  // "operations"
  std::string name;   // "attention, bfloat16"
  bool passed = true;
  std::string detail;         // "error 3e-7", and on failure the rank and what it found
  double bytes_a_second = 0;  // of those that measure it
};

/// Each operation, forward and backward, on the rank's device, against float64 on the CPU. Every
/// rank must call all of these; the results are those of all ranks, on each.
std::vector<Check> check_operations(train::World& world);
/// Each collective over all ranks, messages around the ring and between each two ranks, with their
/// speeds.
std::vector<Check> check_collectives(train::World& world);
/// Two steps of a small model under each kind of parallelism, against one rank.
std::vector<Check> check_plans(train::World& world);
/// Steps of fixed shapes as they are captured in CUDA graphs, against the plain ones.
std::vector<Check> check_graphs(train::World& world);

}  // namespace lockstep::cli
