// Implements the checks of `lockstep doctor`.
#include "launch/doctor/checkup.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/format.h"
#include "launch/plan/devices.h"
#include "launch/plan/program.h"
#include "launch/system/network.h"

namespace lockstep::launch {
namespace {

using State = Finding::State;
constexpr double kMebi = 1 << 20, kGibi = 1 << 30;

std::string bytes_text(double bytes) {
  return bytes >= kGibi ? fmt::format("{:.1f} GiB", bytes / kGibi)
                        : fmt::format("{:.0f} MiB", bytes / kMebi);
}

// Returns a command's output. The time is limited with timeout(1), because nvidia-smi hangs if the
// driver is broken.
std::string output_of(const std::string& command) {
  const std::string bounded = "timeout 10 " + command + " 2>/dev/null";
  std::FILE* pipe = ::popen(bounded.c_str(), "re");
  std::string text;
  char part[4096];
  size_t size = 0;
  while (pipe != nullptr && (size = std::fread(part, 1, sizeof part, pipe)) > 0) {
    text.append(part, size);
  }
  if (pipe != nullptr) {
    ::pclose(pipe);
  }
  return text;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Finding machine() {
  utsname name{};
  ::uname(&name);
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return {
      State::kGood,
      "machine",
      fmt::format(
          "{}, {} cores ({} CPUs), {}, Linux {}",
          own_host_name(),
          usable_cores(),
          std::thread::hardware_concurrency(),
          bytes_text(memory),
          name.release),
      ""};
}

void examine_gpus(const Environment& environment, std::vector<Finding>& findings) {
  const std::vector<Gpu> gpus = installed_gpus();
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  const auto order = environment.find("CUDA_DEVICE_ORDER");
  std::string value =
      gpus.empty() ? "none" : fmt::format("{} x {}", gpus.size(), gpus.front().model);
  if (visible != environment.end()) {
    value += fmt::format(
        "; CUDA_VISIBLE_DEVICES='{}' shows {}", visible->second, usable_gpus(environment).size());
  }
  if (order != environment.end()) {
    value += "; CUDA_DEVICE_ORDER=" + order->second;
  }
  const bool hidden = !gpus.empty() && usable_gpus(environment).empty();
  findings.push_back(
      {hidden ? State::kWarning : State::kGood,
       "GPUs",
       value,
       hidden ? "unset CUDA_VISIBLE_DEVICES, or list GPUs in it" : ""});
  const std::string driver = first_line("/proc/driver/nvidia/version");
  if (gpus.empty() && driver.empty()) {
    return;
  }
  const std::string smi = output_of(
      "nvidia-smi --query-gpu=index,memory.used,ecc.errors.uncorrected.volatile.total "
      "--format=csv,noheader");
  findings.push_back(
      {smi.empty() ? State::kBroken : State::kGood,
       "driver",
       driver.empty() ? "loaded" : driver.substr(0, 90),
       smi.empty() ? "nvidia-smi does not answer: reload the driver or reboot; see also `dmesg | "
                     "grep -i xid`"
                   : ""});
  const std::string links = output_of("nvidia-smi topo -m");
  const bool nvlink = links.find("\tNV") != std::string::npos;
  if (gpus.size() > 1) {
    findings.push_back(
        {State::kGood, "links", nvlink ? "NVLink between GPUs" : "PCIe only between GPUs", ""});
  }
}

void examine_nccl(std::vector<Finding>& findings) {
  if (installed_gpus().empty()) {
    return;
  }
  std::error_code ignored;
  const std::filesystem::path own = std::filesystem::path(own_path()).parent_path();
  const bool there = std::filesystem::exists(own / "liblockstep_cuda.so", ignored) ||
                     std::filesystem::exists(own / "../lib/liblockstep_cuda.so", ignored);
  findings.push_back(
      {there ? State::kGood : State::kBroken,
       "NCCL",
       there ? "liblockstep_cuda.so found"
             : "liblockstep_cuda.so is neither next to the program nor in ../lib",
       there ? "" : "build with LOCKSTEP_CUDA=1"});
}

Finding own_name() {
  const std::string host = own_host_name();
  const std::vector<std::string> addresses = resolve(host);
  if (addresses.empty()) {
    return {
        State::kWarning,
        "host name",
        host + " does not resolve",
        "add it to /etc/hosts or DNS, or use addresses: --rdzv-endpoint ADDRESS:PORT, "
        "--local-addr"};
  }
  const bool loopback = is_loopback(addresses.front());
  return {
      State::kGood,
      "host name",
      fmt::format(
          "{} is {}{}",
          host,
          addresses.front(),
          loopback ? " (loopback: single machine only)" : ""),
      ""};
}

Finding free_port() {
  try {
    const Socket socket = listen_on("127.0.0.1", 0);
    const bool usual = [] {
      try {
        listen_on("127.0.0.1", 29500);
        return true;
      } catch (const Error&) {
        return false;
      }
    }();
    return {
        State::kGood,
        "ports",
        usual ? "ports can be opened, 29500 is free"
              : fmt::format("ports can be opened; 29500 is used by {}", port_holder(29500)),
        ""};
  } catch (const Error& error) {
    return {
        State::kBroken,
        "ports",
        error.message(),
        "check `ip address show lo` and net.ipv4.ip_local_port_range"};
  }
}

}  // namespace

Finding judge_shared_memory(double free_bytes) {
  const std::string value = bytes_text(free_bytes) + " free in /dev/shm";
  if (free_bytes < 64 * kMebi) {
    return {State::kBroken, "shared memory", value, "docker run --shm-size=8g, or --ipc=host"};
  }
  const bool small = free_bytes < kGibi;
  return {
      small ? State::kWarning : State::kGood,
      "shared memory",
      value,
      small ? "NCCL and data loaders may need more: docker run --shm-size=8g" : ""};
}

Finding judge_open_files(double limit) {
  const std::string value = fmt::format("{:.0f} open files allowed", limit);
  if (limit < 256) {
    return {State::kBroken, "limits", value, "ulimit -n 65536 (and limits.conf)"};
  }
  return {
      limit < 4096 ? State::kWarning : State::kGood,
      "limits",
      value,
      limit < 4096 ? "many workers need more: ulimit -n 65536" : ""};
}

Finding judge_disk(const std::filesystem::path& folder) {
  constexpr size_t kSize = size_t{64} << 20;
  const std::filesystem::path path = folder / fmt::format(".lockstep-doctor-{}", ::getpid());
  const auto begin = std::chrono::steady_clock::now();
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const std::vector<char> block(size_t{1} << 20, 'x');
  bool good = descriptor >= 0;
  for (size_t done = 0; good && done < kSize; done += block.size()) {
    good = ::write(descriptor, block.data(), block.size()) == static_cast<ssize_t>(block.size());
  }
  good = good && ::fsync(descriptor) == 0;
  const int reason = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
    ::unlink(path.c_str());
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!good) {
    return {
        State::kBroken,
        "disk",
        fmt::format("{}: {}", folder.string(), std::strerror(reason)),
        "free disk space, or choose another folder with --output"};
  }
  struct statvfs space{};
  ::statvfs(folder.c_str(), &space);
  const double speed = static_cast<double>(kSize) / seconds;
  const double free_bytes =
      static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  const bool slow = speed < 50e6;
  return {
      slow ? State::kWarning : State::kGood,
      "disk",
      fmt::format(
          "{}: {:.0f} MB/s written and synced, {} free",
          folder.string(),
          speed / 1e6,
          bytes_text(free_bytes)),
      slow ? "checkpoints will be slow: use a local or faster disk" : ""};
}

Finding judge_bandwidth(int ranks, double all_reduce, double expected) {
  const std::string value = fmt::format(
      "{:.2f} GB/s between {} ranks, {:.2f} GB/s expected",
      all_reduce / 1e9,
      ranks,
      expected / 1e9);
  const double share = expected > 0 ? all_reduce / expected : 1;
  const State state = share < 0.05 ? State::kBroken : share < 0.25 ? State::kWarning : State::kGood;
  return {
      state,
      "all-reduce",
      value,
      state == State::kGood ? ""
                            : "check for other jobs on the machine, a slow interface "
                              "(NCCL_SOCKET_IFNAME), or PCIe settings"};
}

Finding judge_clocks(double largest_seconds, int nodes) {
  const bool far = largest_seconds > 1;
  return {
      far ? State::kWarning : State::kGood,
      "clocks",
      fmt::format("largest clock difference {:.3f} s, {} nodes", largest_seconds, nodes),
      far ? "start NTP or chrony on every node, so that times in logs and reports are comparable"
          : ""};
}

std::vector<Finding> examine_machine(
    const Environment& environment, const std::filesystem::path& output) {
  std::vector<Finding> findings{machine()};
  examine_gpus(environment, findings);
  examine_nccl(findings);
  struct statvfs shm{};
  if (::statvfs("/dev/shm", &shm) == 0) {
    findings.push_back(
        judge_shared_memory(static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_frsize)));
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  findings.push_back(judge_open_files(static_cast<double>(limit.rlim_max)));
  findings.push_back(own_name());
  findings.push_back(free_port());
  findings.push_back(judge_disk(output));
  return findings;
}

std::string table_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const char* state = finding.state == State::kGood      ? "ok"
                        : finding.state == State::kWarning ? "warning"
                                                           : "BROKEN";
    text += fmt::format("{:<8} {:<14} {}\n", state, finding.what, finding.value);
    if (!finding.remedy.empty()) {
      text += fmt::format("{:<8} {:<14} try: {}\n", "", "", finding.remedy);
    }
  }
  return text;
}

int exit_code_of(const std::vector<Finding>& findings) {
  const bool broken = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.state == State::kBroken;
  });
  return broken ? exit_code(ErrorKind::kEnvironment) : 0;
}

}  // namespace lockstep::launch
