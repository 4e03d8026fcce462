// Lists the GPUs of this machine from files of the kernel, without a driver library.
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

/// Returns all GPUs of the machine in PCI order.
std::vector<Gpu> installed_gpus();

/// Returns the entries of CUDA_VISIBLE_DEVICES, up to the first "-1" or empty one, like CUDA.
/// Returns nullopt if it is not set. An empty value hides all GPUs.
std::optional<std::vector<std::string>> visible_devices(const Environment& environment);

/// Returns the entries for the workers' CUDA_VISIBLE_DEVICES: those of this process's variable, or
/// 0 to N-1 for N installed GPUs.
std::vector<std::string> usable_gpus(const Environment& environment);

/// Returns the CPUs close to a worker's GPU, for --numa-binding ("node", "socket", "exclusive",
/// "core-complex"). `entries` are those of CUDA_VISIBLE_DEVICES. Empty if the machine does not
/// report them.
std::vector<int> cpus_near(
    const std::string& binding, const std::vector<std::string>& entries, int local_rank);

/// Parses a list such as "0-3,8". Empty if the string is not a list.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace lockstep::launch
