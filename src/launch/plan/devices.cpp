// Lists GPUs and their NUMA nodes from files of the kernel.
#include "launch/plan/devices.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/format.h"
#include "launch/plan/options.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> as_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string model_of(const fs::path& information) {
  std::ifstream file(information);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("Model:")) {
      const size_t begin = line.find_first_not_of(" \t", 6);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  }
  return "";
}

// Containers may have the device files without /proc/driver/nvidia.
size_t device_files() {
  size_t count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("nvidia") && as_number(name.substr(6))) {
      ++count;
    }
  }
  return count;
}

std::vector<int> node_cpus(int node) {
  return parse_cpu_list(first_line(fmt::format("/sys/devices/system/node/node{}/cpulist", node)));
}

std::vector<int> package_cpus(int cpu) {
  return parse_cpu_list(
      first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/package_cpus_list", cpu)));
}

std::vector<int> cache_cpus(int cpu) {
  return parse_cpu_list(
      first_line(fmt::format("/sys/devices/system/cpu/cpu{}/cache/index3/shared_cpu_list", cpu)));
}

// Returns the share of the CPUs for one of `count` GPUs. The shares are equal.
std::vector<int> share_of(const std::vector<int>& cpus, int index, int count) {
  const int size = static_cast<int>(cpus.size());
  const auto at = [&](int i) {
    return cpus.begin() + static_cast<std::ptrdiff_t>(size) * i / count;
  };
  return {at(index), at(index + 1)};
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> result;
  for (const std::string& part : split(text, ',')) {
    const size_t dash = part.find('-');
    const std::optional<int> first = as_number(part.substr(0, dash));
    const std::optional<int> last =
        dash == std::string::npos ? first : as_number(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > 65535) {
      return {};
    }
    for (int cpu = *first; cpu <= *last; ++cpu) {
      result.push_back(cpu);
    }
  }
  return result;
}

std::vector<Gpu> installed_gpus() {
  std::vector<Gpu> result;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    Gpu gpu;
    gpu.pci = entry.path().filename().string();
    gpu.model = model_of(entry.path() / "information");
    gpu.numa_node = as_number(first_line(fs::path("/sys/bus/pci/devices") / gpu.pci / "numa_node"))
                        .value_or(-1);
    result.push_back(gpu);
  }
  std::sort(result.begin(), result.end(), [](const Gpu& a, const Gpu& b) { return a.pci < b.pci; });
  const size_t files = device_files();
  // A container may see only some of the machine's GPUs. If so, trust the number of device files.
  if (result.empty() || (files > 0 && files < result.size())) {
    result.assign(files, Gpu{});
  }
  return result;
}

std::optional<std::vector<std::string>> visible_devices(const Environment& environment) {
  const auto found = environment.find("CUDA_VISIBLE_DEVICES");
  if (found == environment.end()) {
    return std::nullopt;
  }
  std::vector<std::string> result;
  for (std::string entry : split(found->second, ',')) {
    entry.erase(0, entry.find_first_not_of(" \t"));
    entry.erase(entry.find_last_not_of(" \t") + 1);
    if (entry.empty() || entry.starts_with("-")) {
      break;
    }
    result.push_back(entry);
  }
  return result;
}

std::vector<std::string> usable_gpus(const Environment& environment) {
  const size_t installed = installed_gpus().size();
  const auto visible = visible_devices(environment);
  std::vector<std::string> result;
  if (visible) {
    for (const std::string& entry : *visible) {
      const std::optional<int> index = as_number(entry);
      if (index && static_cast<size_t>(*index) >= installed) {
        break;  // CUDA ignores all devices after the first missing one
      }
      result.push_back(entry);
    }
    return installed == 0 ? std::vector<std::string>{} : result;
  }
  for (size_t i = 0; i < installed; ++i) {
    result.push_back(std::to_string(i));
  }
  return result;
}

std::vector<int> cpus_near(
    const std::string& binding, const std::vector<std::string>& entries, int local_rank) {
  const std::vector<Gpu> gpus = installed_gpus();
  const auto node_of = [&](const std::string& entry) {
    const std::optional<int> index = as_number(entry);
    return index && static_cast<size_t>(*index) < gpus.size() ? gpus[*index].numa_node : -1;
  };
  if (local_rank < 0 || static_cast<size_t>(local_rank) >= entries.size()) {
    return {};
  }
  const int node = node_of(entries[local_rank]);
  const std::vector<int> cpus = node < 0 ? std::vector<int>{} : node_cpus(node);
  if (cpus.empty() || binding == "node") {
    return cpus;
  }
  if (binding == "socket") {
    return package_cpus(cpus.front());
  }
  int before = 0, count = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (node_of(entries[i]) == node) {
      before += static_cast<int>(i) < local_rank ? 1 : 0;
      ++count;
    }
  }
  if (binding == "exclusive") {
    return share_of(cpus, before, count);
  }
  // core-complex: CPUs that share a last-level cache. The GPUs of a NUMA node use the complexes in
  // turn.
  std::vector<std::vector<int>> complexes;
  std::set<int> seen;
  for (const int cpu : cpus) {
    if (seen.insert(cpu).second) {
      complexes.push_back(cache_cpus(cpu));
      seen.insert(complexes.back().begin(), complexes.back().end());
    }
  }
  return complexes.empty() ? cpus : complexes[static_cast<size_t>(before) % complexes.size()];
}

}  // namespace lockstep::launch
