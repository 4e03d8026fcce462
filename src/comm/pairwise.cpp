// All-gather and reduce-scatter with pairwise messages.
#include "comm/pairwise.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/empty.h>

#include "comm/sums.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kBlock = int64_t{1} << 15;  // number of elements that are reduced and passed to
                                              // the reader at a time

/// Combines several works into one.
class Works : public c10d::Work {
 public:
  explicit Works(std::vector<WorkPtr> works) : works_(std::move(works)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) {
      work->wait(timeout);
    }
    return true;
  }

 private:
  std::vector<WorkPtr> works_;
};

/// Returns the peers of a rank, nearest first, so that every rank has a different first peer.
std::vector<int> peers_of(int rank, int size) {
  std::vector<int> peers;
  for (int step = 1; step < size; ++step) {
    peers.push_back((rank + step) % size);
  }
  return peers;
}

}  // namespace

WorkPtr start_transfers(c10d::ProcessGroup& group, std::span<const P2p> transfers) {
  std::vector<WorkPtr> works;
  if (transfers.empty()) {
    return c10::make_intrusive<Works>(std::move(works));
  }
  const c10::DeviceType device = transfers.front().tensor.device().type();
  // If a backend runs messages sequentially, two ranks that both send first would deadlock.
  // Coalesced messages run as one operation.
  const bool coalesces = group.getBackend(device)->supportsCoalescing();
  if (coalesces) {
    group.startCoalescing(device);
  }
  for (const P2p& transfer : transfers) {
    std::vector<Tensor> tensors{transfer.tensor};
    works.push_back(
        transfer.direction == P2p::Direction::kSend
            ? group.send(tensors, transfer.peer, transfer.tag)
            : group.recv(tensors, transfer.peer, transfer.tag));
  }
  if (coalesces) {
    return group.endCoalescing(device);
  }
  return c10::make_intrusive<Works>(std::move(works));
}

WorkPtr start_pairwise_gather(
    c10d::ProcessGroup& group, const Tensor& out, const Tensor& in, int tag) {
  const int64_t part = in.numel();
  std::vector<P2p> transfers;
  for (const int peer :
       part > 0 ? peers_of(group.getRank(), group.getSize()) : std::vector<int>{}) {
    transfers.push_back({P2p::Direction::kReceive, out.narrow(0, peer * part, part), peer, tag});
    transfers.push_back({P2p::Direction::kSend, in, peer, tag});
  }
  WorkPtr work = start_transfers(group, transfers);
  const Tensor mine = out.narrow(0, group.getRank() * part, part);
  if (mine.data_ptr() != in.data_ptr()) {
    mine.copy_(in);
  }
  return work;
}

PairwiseReduction start_pairwise_reduce_scatter(
    c10d::ProcessGroup& group,
    const Tensor& out,
    const Tensor& in,
    Reduce reduce,
    int tag,
    const ResultReader& reader) {
  const int rank = group.getRank();
  const int64_t part = out.numel(), size = group.getSize();
  std::vector<Tensor> parts(static_cast<size_t>(size));
  parts[static_cast<size_t>(rank)] = in.narrow(0, rank * part, part);
  std::vector<P2p> transfers;
  for (const int peer : part > 0 ? peers_of(rank, static_cast<int>(size)) : std::vector<int>{}) {
    Tensor& theirs = parts[static_cast<size_t>(peer)];
    theirs = at::empty({part}, in.options());
    transfers.push_back({P2p::Direction::kReceive, theirs, peer, tag});
    transfers.push_back({P2p::Direction::kSend, in.narrow(0, peer * part, part), peer, tag});
  }
  const auto finish = [out, parts = std::move(parts), part, reduce, reader] {
    if (part == 0) {
      return;
    }
    const auto width = static_cast<int64_t>(out.element_size());
    std::vector<const void*> values(parts.size());
    for (int64_t begin = 0; begin < part; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, part);
      for (size_t r = 0; r < parts.size(); ++r) {
        values[r] = static_cast<const char*>(parts[r].data_ptr()) + begin * width;
      }
      auto* into = static_cast<char*>(out.data_ptr()) + begin * width;
      reduce_parts(out.scalar_type(), reduce, values, end - begin, into);
      if (reader) {
        reader(begin, end);
      }
    }
  };
  return {start_transfers(group, transfers), finish};
}

}  // namespace lockstep::comm
