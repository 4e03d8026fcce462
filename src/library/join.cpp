// Implements joining of a launched process to its job's process group.
#include "library/join.h"

#include "base/log.h"
#include "base/rank_status.h"
#include "launch/workers/read_identity.h"
#include "launch/workers/worker_environment.h"
#include "ops/host_memory.h"

namespace lockstep {

train::RankContext join(const JoinOptions& options) {
  const launch::Environment environment = launch::current_environment();
  const auto identity = launch::read_identity(environment);
  train::WorldOptions world_options;
  world_options.use_cpu = options.device == JoinOptions::Device::kCpu;
  world_options.timeout = options.timeout;
  world_options.shared_memory = options.shared_memory;
  if (const auto found = environment.find("GLOO_SOCKET_IFNAME"); found != environment.end()) {
    world_options.gloo_interface = found->second;
  }
  if (identity) {
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
  begin_rank_status(world_options.rendezvous.rank, world_options.rendezvous.size);
  train::RankContext rank_context = train::join_world(world_options);
  if (identity) {
    rank_context.round = {
        identity->job,
        identity->round,
        identity->first_world_size,
        identity->term,
        identity->group_rank,
        identity->job_is_unique};
  }
  return rank_context;
}

}  // namespace lockstep
