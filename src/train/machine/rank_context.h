// Context of a rank: its device, communicator and job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "comm/communicator.h"
#include "comm/heartbeat.h"
#include "comm/store.h"
#include "train/machine/gpus.h"

namespace lockstep::train {

struct WorldOptions {
  comm::Rendezvous rendezvous;  // size 1: a single process without a store
  int local_rank = 0;
  int local_size = 1;
  bool use_cpu = false;
  std::string gloo_interface;  // GLOO_SOCKET_IFNAME
  bool shared_memory = true;   // between CPU ranks of one node
  std::chrono::seconds timeout = std::chrono::seconds(1800);
};

/// Properties of an elastic job that the launcher passes to the workers. The job may continue with
/// other ranks.
struct JobRound {
  std::string job;      // id of the job, the same in all rounds; empty: unknown
  int number = 0;       // above 0: the workers were restarted
  int first_ranks = 0;  // ranks in round 0, for which the batch size was configured; 0: same as now
  int term = 0;         // number of previous coordinators of the job
  int node = 0;         // node of this rank in this round; each launcher is one node
  bool job_is_unique = true;  // the id is random per launch; false: two jobs may have it
};

struct RankContext {
  comm::Store store;  // undefined for a single process
  comm::Communicator communicator;
  comm::GroupOptions group = {};  // options of the communicator
  c10::Device device = c10::Device(c10::kCPU);
  int local_rank = 0;
  int local_size = 1;
  JobRound round = {};
  bool ranks_are_threads = false;  // ranks are threads of one process
  std::unique_ptr<comm::Heartbeat> heartbeat =
      {};  // only on GPUs, where collectives do not detect lost ranks

  /// Returns the number of ranks that training.per_device_train_batch_size refers to: the ranks at
  /// the start of the job.
  int64_t configured_ranks() const { return round.first_ranks > 0 ? round.first_ranks : size(); }
  int rank() const { return communicator.rank(); }
  int size() const { return communicator.size(); }
  bool is_first() const { return rank() == 0; }
};

using World [[deprecated("use RankContext")]] = RankContext;

/// If a CPU quota grants less than the machine's CPUs, sets the number of threads so that
/// `processes` processes share the quota. Has no effect if OMP_NUM_THREADS is set.
void keep_threads_within_quota(int processes);

/// Joins the job: selects the local rank's device and connects to the other ranks. Blocks until all
/// ranks have joined. Throws Error (environment) if there is no device for this rank, or if the
/// store or a peer cannot be reached.
RankContext join_world(const WorldOptions& options);

/// Runs `body` on rank 0 while the other ranks wait, and returns its result on every rank. If
/// `body` throws, rank 0 rethrows the error and the other ranks throw an error that quotes it. Must
/// be called on every rank.
std::string on_first_rank(
    comm::Communicator& communicator, const std::function<std::string()>& body);

}  // namespace lockstep::train
