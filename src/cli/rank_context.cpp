// Starts the ranks of a command.
#include "cli/rank_context.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include <ATen/Parallel.h>
#include <sys/prctl.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/commands.h"
#include "comm/threads.h"
#include "launch/plan/devices.h"
#include "launch/workers/read_identity.h"
#include "launch/workers/supervisor.h"
#include "launch/workers/worker_environment.h"
#include "library/join.h"
#include "ops/host_memory.h"

namespace lockstep::cli {
namespace {

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// Runs as a rank that was forked from the starting process. Forking avoids loading libtorch again,
// which takes 0.25 s of processor time.
int run_as_rank(const std::string& command, const std::vector<std::string>& arguments) {
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) {  // OpenMP has read the parent's value
    at::set_num_threads(std::max(1, std::atoi(threads)));
  }
  const auto all = commands();
  return run_command(
      *std::find_if(all.begin(), all.end(), [&](const Command& c) { return c.name == command; }),
      arguments);
}

int run_threads(
    const RankOptions& options, int ranks, const std::function<int(train::RankContext&)>& body) {
  const int gpus = options.use_cpu ? 0 : train::visible_gpus();
  if (gpus > 0 && gpus < ranks) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("{} ranks in one process are requested, and {} GPUs are visible", ranks, gpus),
        "start as many ranks as there are GPUs, or set training.use_cpu=true");
  }
  if (gpus > 0) {
    log_warning(
        "{} ranks of one process share CUDA's locks, which may cause a hang: NCCL expects one "
        "process per GPU",
        ranks);
  }
  comm::ThreadedRanks threads;
  threads.size = ranks;
  threads.timeout = options.timeout;
  threads.shared_memory = options.shared_memory;
  threads.compute_threads = std::max(1, usable_cpus() / ranks);
  for (int rank = 0; rank < ranks && gpus > 0; ++rank) {
    threads.devices.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(rank));
  }
  ops::keep_host_memory();
  std::atomic<int> exit = 0;
  comm::run_ranks(threads, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const c10::Device device =
        gpus > 0 ? threads.devices[static_cast<size_t>(rank)] : c10::Device(c10::kCPU);
    train::use_device(device);
    train::RankContext rank_context{
        .store = {}, .communicator = std::move(communicator), .device = device, .local_rank = rank};
    rank_context.group.device = device;
    rank_context.group.timeout = threads.timeout;
    rank_context.group.shared_memory = threads.shared_memory;
    rank_context.local_size = ranks;
    rank_context.ranks_are_threads = true;
    exit = std::max(exit.load(), body(rank_context));  // all ranks return the same exit code
  });
  return exit;
}

}  // namespace

int start_ranks(
    const std::string& command,
    const std::vector<std::string>& arguments,
    int ranks,
    const std::map<std::string, std::string>& environment) {
  constexpr int kMostRanks = 4096;  // limit, because each process has several threads
  if (ranks > kMostRanks) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--nproc {}: at most {} ranks per machine", ranks, kMostRanks),
        "use the number of its GPUs or cores");
  }
  launch::SupervisorOptions supervisor;
  supervisor.workers = ranks;
  if (launch::installed_gpus().empty() &&
      !launch::has_too_many_threads(launch::current_environment(), ranks)) {
    supervisor.body = [&] { return run_as_rank(command, arguments); };
  } else {  // CUDA does not survive a fork, and OpenMP reads its wait policy at start-up
    supervisor.argv = {own_path(), command};
    supervisor.argv.insert(supervisor.argv.end(), arguments.begin(), arguments.end());
  }
  supervisor.name = "lockstep " + command;
  supervisor.environment = environment;
  // Makes ${now:...} expand to the same name on all ranks.
  supervisor.environment["LOCKSTEP_STARTED"] = std::to_string(std::time(nullptr));
  return launch::supervise(supervisor);
}

int run_ranks(const RankOptions& options, const std::function<int(train::RankContext&)>& body) {
  if (const auto identity = launch::read_identity(launch::current_environment())) {
    // Process name shown by top and ps.
    ::prctl(PR_SET_NAME, fmt::format("lockstep-r{}", identity->rank).c_str());
  } else {
    const int64_t ranks =
        options.ranks.value_or(options.use_cpu ? 1 : std::max(train::visible_gpus(), 1));
    if (ranks > 1 && options.in_process) {
      return run_threads(options, static_cast<int>(ranks), body);
    }
    if (ranks > 1) {
      return start_ranks(options.command, options.arguments, static_cast<int>(ranks));
    }
  }
  JoinOptions join_options;
  join_options.timeout = options.timeout;
  join_options.shared_memory = options.shared_memory;
  if (options.use_cpu) {
    join_options.device = JoinOptions::Device::kCpu;
  }
  train::RankContext rank_context = join(join_options);
  return body(rank_context);
}

}  // namespace lockstep::cli
