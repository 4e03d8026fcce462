// Point-to-point lanes between pairs of ranks.
#include "comm/links.h"

#include "base/format.h"
#include "comm/split.h"

namespace lockstep::comm {
namespace {

/// Message tags, which differ from those of collectives (communicator.cpp) and of other callers.
constexpr int kFirstTag = 3 << 28, kTags = 1 << 28;
/// Number of GPU thread blocks per lane. It is small, because there are many lanes and each
/// reserves memory for its blocks.
constexpr int kBlocksOfALane = 4;

}  // namespace

Links::Links(Communicator& group, c10::Device device, std::span<const std::pair<int, int>> pairs)
    : group_(group) {
  const bool own = is_ordered(group.process_group(), device.type());
  for (const auto& [from, to] : pairs) {
    if (from != group.rank() && to != group.rank()) {
      continue;
    }
    Lane& lane = from == group.rank() ? to_[to] : from_[from];
    if (own) {
      GroupOptions options = group.options();
      options.only_on_device = true;
      options.most_blocks = kBlocksOfALane;
      const std::string name = fmt::format("{} from {} to {}", group.name(), from, to);
      lane.own = std::make_unique<Communicator>(split(group, {from, to}, name, options));
      lane.own->be_watched_with(group);
    }
  }
}

Pending Links::start(
    P2p::Direction direction, int peer, Lane& lane, std::span<const Tensor> tensors) {
  const bool sends = direction == P2p::Direction::kSend;
  const int of_lane = sends ? 1 : 0;  // rank 0 of a lane is the sender
  std::vector<P2p> transfers;
  for (const Tensor& tensor : tensors) {
    const int tag = kFirstTag + static_cast<int>(lane.sent++ % kTags);
    transfers.push_back({direction, tensor, lane.own != nullptr ? of_lane : peer, tag});
  }
  return (lane.own != nullptr ? *lane.own : group_).exchange(transfers);
}

Pending Links::send(int to, std::span<const Tensor> tensors) {
  return start(P2p::Direction::kSend, to, to_.at(to), tensors);
}

Pending Links::receive(int from, std::span<const Tensor> tensors) {
  return start(P2p::Direction::kReceive, from, from_.at(from), tensors);
}

}  // namespace lockstep::comm
