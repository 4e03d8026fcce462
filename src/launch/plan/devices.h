// The GPUs of this machine according to the kernel's files, without a driver library.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

struct Gpu {
  std::string pci;    // "0000:3b:00.0"; empty if unknown
  std::string model;  // empty if unknown
  int numa_node = -1;
};

/// All GPUs of the machine, in PCI order.
std::vector<Gpu> installed_gpus();

/// The entries of CUDA_VISIBLE_DEVICES as CUDA reads them (up to the first "-1" or empty one);
/// nullopt if it is not set. An empty value hides every GPU.
std::optional<std::vector<std::string>> visible_devices(const Environment& environment);

/// Values for a worker's CUDA_VISIBLE_DEVICES: its entries, or 0 to N-1 for the installed GPUs.
std::vector<std::string> usable_gpus(const Environment& environment);

/// The CPUs for a worker under --numa-binding ("node", "socket", "exclusive", "core-complex"), next
/// to the GPU of `entry`. Empty if the machine does not report them.
std::vector<int> cpus_near(
    const std::string& binding, const std::vector<std::string>& entries, int local_rank);

/// Parses "0-3,8"; empty if it is not a list.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace lockstep::launch
