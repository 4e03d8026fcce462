// Who this process is among the ranks of a job, and what it computes on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "comm/communicator.h"
#include "comm/store.h"

namespace lockstep::train {

struct WorldOptions {
  comm::Rendezvous rendezvous;  // size 1: alone, nothing is joined
  int local_rank = 0;
  int local_size = 1;
  bool use_cpu = false;
  std::string gloo_interface;  // GLOO_SOCKET_IFNAME
  std::chrono::seconds timeout = std::chrono::seconds(1800);
};

struct World {
  comm::Store store;  // undefined where alone
  comm::Communicator communicator;
  comm::GroupOptions group = {};  // how the communicator was joined
  c10::Device device = c10::Device(c10::kCPU);
  int local_rank = 0;
  int local_size = 1;

  int rank() const { return communicator.rank(); }
  int size() const { return communicator.size(); }
  bool is_first() const { return rank() == 0; }
};

/// Joins the job: picks the device of the local rank and meets the other ranks. Blocks until all
/// have come. Error (environment): no device for this rank, the store or a peer cannot be reached.
World join_world(const WorldOptions& options);

/// Runs `body` on rank 0 while the others wait, and returns its text on every rank. Where it
/// throws, every rank does: rank 0 the error itself, the others one that names it. Every rank must
/// call.
std::string on_first_rank(
    comm::Communicator& communicator, const std::function<std::string()>& body);

/// GPUs that this process may use. Loads liblockstep_cuda.so, where there is one, on the first
/// call.
int visible_gpus();

}  // namespace lockstep::train
