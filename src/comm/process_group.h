// Process groups of c10d: NCCL on GPUs; in host memory, shared memory between ranks of one machine
// and Gloo between those of several.
//
// NCCL is a backend that *orders*: it takes no tags, and what a rank starts on a group runs in that
// order, one after the other. Messages of such a group go at once or not at all (start_transfers),
// and those that may pass each other need lanes of their own (links.h).
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
  c10::Device device = c10::Device(c10::kCPU);  // a GPU's tensors go by NCCL
  std::string host = "127.0.0.1";  // the address that Gloo binds to; empty: the host's own name
  std::string interface;           // or the interface (GLOO_SOCKET_IFNAME)
  bool shared_memory = true;       // where all ranks are of one machine; else Gloo
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Of a wait in shared memory that nothing ends, between looks at the peers' processes.
  std::chrono::milliseconds patience{100};
  std::vector<int> world_ranks = {};  // of its ranks, for errors; empty: 0, 1, ...
  /// Its ranks' waits explain why they do not come to other groups: not so where another thread
  /// than the rank's own calls.
  bool explains_waits = true;
  bool only_on_device = false;  // on a GPU: nothing of the group is in host memory
  int most_blocks = 0;          // of a GPU that NCCL occupies for the group; 0: as it likes
};

/// Joins the group as `rank` of `size`. Every rank of the group must call; blocks until all have.
ProcessGroup join_group(const Store& store, int rank, int size, const GroupOptions& options);

/// Makes a rank's end of a group. Every rank calls; may block until all have.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const Store& store, int rank, int size, const GroupOptions& options)>;
/// How liblockstep_cuda.so offers NCCL without this module linking to it.
void set_nccl_factory(BackendFactory factory);
/// Takes the place of shared memory and Gloo in groups that are joined from now on; null: they do.
void set_host_factory(BackendFactory factory);

/// Whether the group's tensors on such a device go by a backend that orders.
bool is_ordered(const ProcessGroup& group, c10::DeviceType device);

}  // namespace lockstep::comm
