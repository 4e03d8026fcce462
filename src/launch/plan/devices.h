// The GPUs of this machine, as far as the kernel's files tell: no driver library is opened.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

struct Gpu {
  std::string pci;    // "0000:3b:00.0"; empty where unknown
  std::string model;  // empty where unknown
  int numa_node = -1;
};

/// All of the machine, in PCI order.
std::vector<Gpu> installed_gpus();

/// The entries of CUDA_VISIBLE_DEVICES as CUDA reads them (up to the first that is "-1" or empty);
/// nothing where it is not set. Set and empty hides every GPU.
std::optional<std::vector<std::string>> visible_devices(const Environment& environment);

/// What a worker's CUDA_VISIBLE_DEVICES may name: its entries, or 0 to N-1 of the installed ones.
std::vector<std::string> usable_gpus(const Environment& environment);

/// The CPUs for a worker under --numa-binding ("node", "socket", "exclusive", "core-complex"), next
/// to the GPU that `entry` names. Empty where the machine does not tell.
std::vector<int> cpus_near(
    const std::string& binding, const std::vector<std::string>& entries, int local_rank);

/// "0-3,8" to numbers; empty where it is not a list.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace lockstep::launch
