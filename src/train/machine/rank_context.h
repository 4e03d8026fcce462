// Who this process is among the ranks of a job, and what it computes on.
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
  comm::Rendezvous rendezvous;  // size 1: alone, nothing is joined
  int local_rank = 0;
  int local_size = 1;
  bool use_cpu = false;
  std::string gloo_interface;  // GLOO_SOCKET_IFNAME
  bool shared_memory = true;   // between ranks of one machine, on CPUs
  std::chrono::seconds timeout = std::chrono::seconds(1800);
};

/// What a launcher tells of the job that this rank belongs to, where it may go on with other ranks.
struct JobRound {
  std::string job;      // drawn for each launch, the same through its rounds; empty: none told
  int number = 0;       // above 0: the workers were started again
  int first_ranks = 0;  // of round 0, for which the batch was configured; 0: as many as now
  int term = 0;         // how many hosts the job had before
  int node = 0;         // of this rank, in this round: each launcher is one
};

struct RankContext {
  comm::Store store;  // undefined where alone
  comm::Communicator communicator;
  comm::GroupOptions group = {};  // how the communicator was joined
  c10::Device device = c10::Device(c10::kCPU);
  int local_rank = 0;
  int local_size = 1;
  JobRound round = {};
  bool ranks_are_threads = false;                   // of one process
  std::unique_ptr<comm::Heartbeat> heartbeat = {};  // on GPUs, whose collectives tell of no loss

  /// The ranks that training.per_device_train_batch_size counts for: those that the job began with.
  int64_t configured_ranks() const { return round.first_ranks > 0 ? round.first_ranks : size(); }
  int rank() const { return communicator.rank(); }
  int size() const { return communicator.size(); }
  bool is_first() const { return rank() == 0; }
};

/// Where a quota grants a machine's processes less than its CPUs, as many threads as it grants each
/// of `processes`; without effect where OMP_NUM_THREADS says how many.
void keep_threads_within_quota(int processes);

/// Joins the job: picks the device of the local rank and meets the other ranks. Blocks until all
/// have come. Error (environment): no device for this rank, the store or a peer cannot be reached.
RankContext join_world(const WorldOptions& options);

/// Runs `body` on rank 0 while the others wait, and returns its text on every rank. Where it
/// throws, every rank does: rank 0 the error itself, the others one that names it. Every rank must
/// call.
std::string on_first_rank(
    comm::Communicator& communicator, const std::function<std::string()>& body);

}  // namespace lockstep::train
