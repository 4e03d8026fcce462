// A backend of c10d for tensors in host memory that keeps NCCL's rules, for ranks that are threads:
// what would hang, or come out wrong, on GPUs shows on any machine.
//
// As ProcessGroupNCCL: tags are ignored; what a rank starts on a communicator runs in that order,
// one after the other; a send has ended when it was received; a lone send or receive of a group
// that was not connected when it was made goes through a communicator of its two ranks, which the
// first use makes, blocking the host until the other comes too; calls between startCoalescing and
// endCoalescing go at once. Stricter than it: results hold NaN until wait(); what is sent must not
// change before wait(); all ranks' collectives must be alike; a deadlock is an error at once, which
// tells the cycle.
#pragma once

#include <cstdint>

namespace lockstep::comm {

struct LikeNccl {
  bool connects_with_group = true;  // else lazily, as where no device is bound
  int64_t fifo_bytes = 0;           // between two ranks of a communicator, that may be on their way
};

/// While it lives, groups that are joined carry tensors in host memory by such a backend.
class UseLikeNccl {
 public:
  explicit UseLikeNccl(const LikeNccl& options = {});
  UseLikeNccl(const UseLikeNccl&) = delete;
  UseLikeNccl& operator=(const UseLikeNccl&) = delete;
  ~UseLikeNccl();
};

}  // namespace lockstep::comm
