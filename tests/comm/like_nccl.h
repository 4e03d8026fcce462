// c10d backend for CPU tensors that enforces NCCL's rules, for ranks that are threads. It detects
// on any machine what would hang or give wrong results on GPUs.
//
// As in ProcessGroupNCCL, tags are ignored and a rank's operations on a communicator run
// sequentially, in the order in which they were started. A send completes when it has been
// received. If the group was not connected when it was created, a single send or receive uses a
// communicator of its two ranks. The first use creates it and blocks the host until the peer
// arrives. Calls between startCoalescing and endCoalescing start together.
//
// The backend is stricter than NCCL in these points: results contain NaN until wait(); a sent
// tensor must not change before wait(); collectives must be identical on all ranks; a deadlock is
// an immediate error that describes the cycle.
#pragma once

#include <cstdint>

namespace lockstep::comm {

struct LikeNccl {
  bool connects_with_group = true;  // false: connects lazily, as without a bound device
  int64_t fifo_bytes = 0;           // bytes in flight between two ranks that need no receive
};

/// During its lifetime, newly joined groups use this backend for CPU tensors.
class UseLikeNccl {
 public:
  explicit UseLikeNccl(const LikeNccl& options = {});
  UseLikeNccl(const UseLikeNccl&) = delete;
  UseLikeNccl& operator=(const UseLikeNccl&) = delete;
  ~UseLikeNccl();
};

}  // namespace lockstep::comm
