// Process groups of c10d: NCCL on GPUs; in host memory, shared memory between ranks of one machine
// and Gloo between those of several.
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
  std::vector<int> world_ranks = {};  // of its ranks, for errors; empty: 0, 1, ...
  /// Its ranks' waits explain why they do not come to other groups: not so where another thread
  /// than the rank's own calls.
  bool explains_waits = true;
};

/// Joins the group as `rank` of `size`. Every rank of the group must call; blocks until all have.
ProcessGroup join_group(const Store& store, int rank, int size, const GroupOptions& options);

/// How liblockstep_cuda.so offers NCCL without this module linking to it.
using NcclFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const Store& store, int rank, int size, const GroupOptions& options)>;
void set_nccl_factory(NcclFactory factory);

}  // namespace lockstep::comm
