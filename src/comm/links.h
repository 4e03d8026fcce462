// Point-to-point lanes. Messages from one rank to another arrive in order and do not wait for
// messages of other pairs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Lanes between the ranks of a group. With an ordered backend (process_group.h), each lane is a
/// group of two ranks with its own communicator and stream, so that a blocked lane does not delay
/// the others. With other backends, all lanes use the same group with distinct tags.
class Links {
 public:
  /// `pairs` lists the source and destination of each lane, without duplicates. Must be called on
  /// every rank of `group` with the same pairs in the same order; blocks until all ranks have
  /// called. `group` must outlive the links.
  Links(Communicator& group, c10::Device device, std::span<const std::pair<int, int>> pairs);

  /// Sends all tensors to a rank of the group, or receives all from it, in one call. The receiver's
  /// n-th call matches the sender's n-th call, and the tensors must have the same shapes. Tensors
  /// must be contiguous, on the device, and stay alive until wait() returns.
  Pending send(int to, std::span<const Tensor> tensors);
  Pending receive(int from, std::span<const Tensor> tensors);

 private:
  struct Lane {
    std::unique_ptr<Communicator> own;  // null: the lane uses the group's communicator
    int64_t sent = 0;                   // number of tensors sent so far
  };
  Pending start(P2p::Direction direction, int peer, Lane& lane, std::span<const Tensor> tensors);

  Communicator& group_;
  std::map<int, Lane> to_, from_;  // keyed by peer rank
};

}  // namespace lockstep::comm
