#include "cli/world.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "launch/read_identity.h"
#include "launch/supervisor.h"
#include "launch/worker_environment.h"
#include "ops/host_memory.h"

namespace lockstep::cli {
namespace {

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string value_or_empty(const launch::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

int start_ranks(const RankOptions& options, int ranks) {
  launch::SupervisorOptions supervisor;
  supervisor.workers = ranks;
  supervisor.argv = {own_path(), options.command};
  supervisor.argv.insert(supervisor.argv.end(), options.arguments.begin(), options.arguments.end());
  supervisor.name = "lockstep " + options.command;
  // All ranks make the same names from ${now:...}.
  supervisor.environment["LOCKSTEP_STARTED"] = std::to_string(std::time(nullptr));
  return launch::supervise(supervisor);
}

}  // namespace

int run_ranks(const RankOptions& options, const std::function<int(train::World&)>& body) {
  const launch::Environment environment = launch::current_environment();
  const auto identity = launch::read_identity(environment);
  train::WorldOptions world_options;
  world_options.use_cpu = options.use_cpu;
  world_options.timeout = options.timeout;
  world_options.gloo_interface = value_or_empty(environment, "GLOO_SOCKET_IFNAME");
  if (!identity) {
    const int64_t ranks =
        options.ranks.value_or(options.use_cpu ? 1 : std::max(train::visible_gpus(), 1));
    if (ranks > 1) {
      return start_ranks(options, static_cast<int>(ranks));
    }
  } else {
    world_options.rendezvous.rank = identity->rank;
    world_options.rendezvous.size = identity->world_size;
    world_options.rendezvous.address = identity->master_address;
    world_options.rendezvous.port = identity->master_port;
    world_options.rendezvous.hosted_by_agent = identity->agent_store;
    world_options.local_rank = identity->local_rank;
    world_options.local_size = identity->local_world_size;
    if (identity->world_size > 1) {
      set_log_rank(identity->rank);
    }
  }
  ops::keep_host_memory();
  train::World world = train::join_world(world_options);
  if (identity) {
    world.round = {identity->job, identity->round, identity->first_world_size};
  }
  return body(world);
}

}  // namespace lockstep::cli
