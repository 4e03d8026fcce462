// c10d process groups: NCCL for GPU tensors; for CPU tensors, shared memory within a node and Gloo
// across nodes.
//
// NCCL is an ordered backend: it ignores tags and executes the operations of a group in the order
// in which a rank starts them. Point-to-point messages of such a group must be coalesced
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
  c10::Device device = c10::Device(c10::kCPU);  // tensors on a GPU are sent through NCCL
  std::string host = "127.0.0.1";  // address that Gloo binds to; empty: the address of the host
                                   // name
  std::string interface;           // network interface for Gloo, instead of `host`
                                   // (GLOO_SOCKET_IFNAME)
  bool shared_memory = true;       // use shared memory if all ranks are on one node; false: always
                                   // use Gloo
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Interval at which a wait in shared memory checks that the peers' processes are alive.
  std::chrono::milliseconds patience{100};
  std::vector<int> world_ranks = {};  // world ranks of the members, for error messages; empty: 0,
                                      // 1, ...
  /// Publishes the waits in this group to the peers of all groups of this rank. Must be false if
  /// any thread other than the rank's main thread uses the group.
  bool explains_waits = true;
  bool only_on_device = false;  // on a GPU: create no host backend for the group
  int most_blocks = 0;          // maximum number of GPU thread blocks that NCCL uses; 0: NCCL's
                                // default
};

/// Joins the group as `rank` of `size`. Must be called on every rank of the group; blocks until all
/// ranks have called.
ProcessGroup join_group(const Store& store, int rank, int size, const GroupOptions& options);

/// Creates a rank's backend of a group. Must be called on every rank; may block until all ranks
/// have called.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const Store& store, int rank, int size, const GroupOptions& options)>;
/// Registers NCCL. Called by liblockstep_cuda.so, so that this module does not have to link to
/// NCCL.
void set_nccl_factory(BackendFactory factory);
/// Replaces shared memory and Gloo in groups that are joined from now on; null restores them.
void set_host_factory(BackendFactory factory);

/// Returns true if the group uses an ordered backend for tensors on this type of device.
bool is_ordered(const ProcessGroup& group, c10::DeviceType device);

}  // namespace lockstep::comm
