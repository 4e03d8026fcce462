// Process groups of c10d: NCCL for GPU tensors; for CPU tensors, shared memory within a node and Gloo
// across nodes.
//
// NCCL is an ordered backend: it ignores tags and executes the operations of a group in the order in
// which a rank starts them. Point-to-point messages of such a group must be coalesced
// (start_transfers). Messages that may overtake each other need separate lanes (links.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/store.h"

namespace lockstep::comm {

using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

struct GroupOptions {
  c10::Device device = c10::Device(c10::kCPU);  // tensors on a GPU use NCCL
  std::string host = "127.0.0.1";  // address that Gloo binds to; empty: the host's name
  std::string interface;           // or Gloo's network interface (GLOO_SOCKET_IFNAME)
  bool shared_memory = true;       // if all ranks are on one machine; otherwise Gloo
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Interval at which a wait in shared memory checks that the peers' processes are alive.
  std::chrono::milliseconds patience{100};
  std::vector<int> world_ranks = {};  // world ranks of the members, for errors; empty: 0, 1, ...
  /// A wait in this group explains why the rank is late in other groups; false if another thread
  /// than the rank's own calls.
  bool explains_waits = true;
  bool only_on_device = false;  // on a GPU: the group never handles host tensors
  int most_blocks = 0;          // limit of NCCL's GPU thread blocks; 0: NCCL's default
};

/// Joins the group as `rank` of `size`. All ranks of the group must call; blocks until all have
/// called.
ProcessGroup join_group(const Store& store, int rank, int size, const GroupOptions& options);

/// Registers NCCL from liblockstep_cuda.so, so that this module does not link to it.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const Store& store, int rank, int size, const GroupOptions& options)>;
/// Creates this rank's endpoint of a group. Every rank calls; may block until all have.
void set_nccl_factory(BackendFactory factory);
/// Replaces shared memory and Gloo in groups joined from now on; null restores them.
void set_host_factory(BackendFactory factory);

/// True if the group uses a backend that orders for tensors on such a device.
bool is_ordered(const ProcessGroup& group, c10::DeviceType device);

}  // namespace lockstep::comm
