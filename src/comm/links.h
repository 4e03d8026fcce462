// Point-to-point lanes: messages of one ordered pair of ranks arrive in order and do not wait for
// those of other pairs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Lanes between ranks of a group. With an ordered backend (process_group.h), each lane is a group
/// of two ranks with its own communicator and stream, so that a blocked lane does not delay
/// another. With other backends all lanes share the group and use distinct tags.
class Links {
 public:
  /// `pairs` lists source and destination of each lane, without duplicates. Every rank of `group`
  /// must call with the same pairs in the same order; blocks until all have called. `group` must
  /// outlive the links.
  Links(Communicator& group, c10::Device device, std::span<const std::pair<int, int>> pairs);

  /// Sends or receives all tensors together, to or from a rank of the group. The receiver's n-th
  /// call matches the sender's n-th, with tensors of the same shapes. Tensors must be contiguous,
  /// on the device, and live until wait().
  Pending send(int to, std::span<const Tensor> tensors);
  Pending receive(int from, std::span<const Tensor> tensors);

 private:
  struct Lane {
    std::unique_ptr<Communicator> own;  // null: uses the group's communicator
    int64_t sent = 0;                   // number of tensors
  };
  Pending start(P2p::Direction direction, int peer, Lane& lane, std::span<const Tensor> tensors);

  Communicator& group_;
  std::map<int, Lane> to_, from_;  // by peer rank
};

}  // namespace lockstep::comm
