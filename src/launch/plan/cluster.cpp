// Reads the environment variables of SLURM and MPI.
#include "launch/plan/cluster.h"

#include <charconv>

#include "base/error.h"
#include "base/format.h"
#include "launch/plan/hostfile.h"

namespace lockstep::launch {
namespace {

// Names of the variables in which a manager gives each task its rank. Empty: the manager does not
// set it.
struct Names {
  const char *manager, *rank, *size, *local_rank, *local_size;
};

constexpr Names kManagers[] = {
    {"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

class ClusterReader {
 public:
  explicit ClusterReader(const Environment& environment) : environment_(environment) {}

  std::string text(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  std::optional<int> number(const std::string& name) const {
    const std::string value = text(name);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || error != std::errc() || number < 0) {
      return std::nullopt;
    }
    // Values of SLURM_TASKS_PER_NODE can have the form "4(x2)". Only the number before the
    // parenthesis counts.
    return end == value.data() + value.size() || *end == '(' || *end == ',' ? std::optional(number)
                                                                            : std::nullopt;
  }

 private:
  const Environment& environment_;
};

// Returns a port derived from the job's number. It is the same on every node, and differs between
// jobs that share a node.
int port_of(const std::string& job) {
  uint32_t hash = 2166136261U;
  for (const char letter : job) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  }
  return 20000 + static_cast<int>(hash % 10000);
}

void read_slurm(const ClusterReader& reader, ClusterPlace& place) {
  place.nodes =
      reader.number("SLURM_STEP_NUM_NODES").value_or(reader.number("SLURM_NNODES").value_or(1));
  place.node = reader.number("SLURM_NODEID").value_or(0);
  place.size = reader.number("SLURM_STEP_NUM_TASKS").value_or(place.size);
  place.local_size =
      reader.number("SLURM_STEP_TASKS_PER_NODE")
          .value_or(reader.number("SLURM_NTASKS_PER_NODE")
                        .value_or(std::max(1, place.size / std::max(1, place.nodes))));
  const std::string step = reader.text("SLURM_STEP_NODELIST");
  const auto hosts = expand_hosts(step.empty() ? reader.text("SLURM_JOB_NODELIST") : step);
  place.first_host = hosts.empty() ? "" : hosts.front();
  place.port = port_of(reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID"));
}

}  // namespace

std::optional<ClusterPlace> find_cluster(const Environment& environment) {
  const ClusterReader reader(environment);
  for (const Names& names : kManagers) {
    const auto rank = reader.number(names.rank), size = reader.number(names.size);
    const bool slurm = names.manager == std::string_view("SLURM");
    // In a SLURM batch script, SLURM_PROCID=0 is set as well. Only steps of srun have a step id.
    if (!rank || !size || *size < 1 || (slurm && !reader.number("SLURM_STEP_ID"))) {
      continue;
    }
    ClusterPlace place;
    place.manager = names.manager;
    place.rank = *rank;
    place.size = *size;
    place.local_rank = reader.number(names.local_rank).value_or(0);
    place.local_size = reader.number(names.local_size).value_or(1);
    if (slurm) {
      read_slurm(reader, place);
    } else {
      place.nodes = std::max(1, place.size / std::max(1, place.local_size));
      place.node = place.rank / std::max(1, place.local_size);
      place.port = port_of(reader.text("PMIX_NAMESPACE") + reader.text("PMI_ID") + "mpi");
    }
    if (place.rank >= place.size || place.local_rank >= place.local_size) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{}={}, {}={}, {}={}: the variables of {} are inconsistent",
              names.rank,
              place.rank,
              names.size,
              place.size,
              names.local_rank,
              place.local_rank,
              place.manager),
          "start every task with srun or mpirun, or unset them");
    }
    return place;
  }
  return std::nullopt;
}

void join_cluster(const ClusterPlace& place, const Environment& environment, LaunchPlan& plan) {
  if (place.size == 1) {
    return;
  }
  const ClusterReader reader(environment);
  const std::string address = reader.text("MASTER_ADDR");
  const std::string known = place.nodes == 1 ? "127.0.0.1" : place.first_host;
  const std::string host = address.empty() ? known : address;
  if (host.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} does not provide the host of rank 0", place.manager),
        "set MASTER_ADDR to its address: mpirun -x MASTER_ADDR=HOST ...");
  }
  const int port = reader.number("MASTER_PORT").value_or(place.port);
  if (place.size == place.nodes) {
    plan.rendezvous.kind = RendezvousPoint::Kind::kStatic;
    plan.rendezvous.host = host;
    plan.rendezvous.port = port;
    plan.rendezvous.node_rank = place.node;
    plan.min_nodes = plan.max_nodes = place.nodes;
    plan.run_id = fmt::format("{}-{}", place.manager, port);
  } else {
    WorkerIdentity identity;
    identity.rank = identity.role_rank = place.rank;
    identity.world_size = identity.role_world_size = place.size;
    identity.local_rank = place.local_rank;
    identity.local_world_size = place.local_size;
    identity.group_rank = place.node;
    identity.group_world_size = place.nodes;
    identity.master_address = host;
    identity.master_port = port;
    identity.agent_store = false;  // the tasks have no agent in common, so rank 0 hosts the store
    plan.identity = identity;
    plan.workers = 1;
    plan.rendezvous.kind = RendezvousPoint::Kind::kLocal;
  }
  plan.notes.push_back(fmt::format(
      "{}: task {} of {} on node {} of {}, rendezvous at {}:{}",
      place.manager,
      place.rank,
      place.size,
      place.node,
      place.nodes,
      host,
      port));
}

}  // namespace lockstep::launch
