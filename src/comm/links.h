// Messages that may pass each other: one lane for each ordered pair of ranks, received in the order
// in which they were sent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Lanes between ranks of a group. Where the device's backend orders (process_group.h), each lane
/// is a group of its two ranks, with a communicator and a stream of its own: what waits in one
/// holds up no other. Elsewhere all go over the group, and tags tell them apart.
class Links {
 public:
  /// `pairs`: source and destination, without repetition. Every rank of `group` must call, with the
  /// same pairs in the same order; blocks until all have. `group` must outlive the links.
  Links(Communicator& group, c10::Device device, std::span<const std::pair<int, int>> pairs);

  /// All at once, to or from a rank of the group. The receiver's n-th call is of the sender's n-th,
  /// with tensors of the same shapes. Tensors must be contiguous, on the device, and live until
  /// wait().
  Pending send(int to, std::span<const Tensor> tensors);
  Pending receive(int from, std::span<const Tensor> tensors);

 private:
  struct Lane {
    std::unique_ptr<Communicator> own;  // null: the group's
    int64_t sent = 0;                   // tensors
  };
  Pending start(P2p::Direction direction, int peer, Lane& lane, std::span<const Tensor> tensors);

  Communicator& group_;
  std::map<int, Lane> to_, from_;  // by the other rank
};

}  // namespace lockstep::comm
