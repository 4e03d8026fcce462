// Shared-memory implementations of the collectives.
#include "comm/shared_operations.h"

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/format.h"
#include "comm/shared_parts.h"

namespace lockstep::comm {
namespace {

using Group = SharedOperation::Group;

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

/// Collective in which all ranks offer a tensor and read their peers' tensors.
class Collective : public SharedOperation {
 public:
  Collective(
      const Group& group, c10d::OpType type, at::Tensor offered, uint64_t key, uint64_t signature)
      : SharedOperation(group, type),
        parts_(group.rank, group.size, std::move(offered), key, signature) {}

  void announce(SharedBoard& board) override { parts_.announce(board); }
  bool go_on(SharedBoard& board) override { return parts_.announced() && go_on_announced(board); }
  uint64_t missing() const override { return parts_.missing(); }
  uint64_t awaited() const override { return parts_.awaited(); }
  uint64_t bytes() const override { return parts_.offered().nbytes(); }

 protected:
  virtual bool go_on_announced(SharedBoard& board) = 0;
  /// Copies `bytes` bytes at offset `begin` of each peer's tensor to the peer's slice of `out` as
  /// soon as the peer has posted its offer. Returns true when all peers have been read.
  bool read_each(SharedBoard& board, uint64_t begin, uint64_t bytes, const at::Tensor& out) {
    for (int peer = 0; peer < board.size(); ++peer) {
      if (peer != board.rank() && !parts_.took(peer) && parts_.find(board, peer) != nullptr) {
        char* into = bytes_of(out) + static_cast<uint64_t>(peer) * bytes;
        parts_.read(board, peer, begin, bytes, into);
        parts_.take(board, peer);
      }
    }
    return parts_.ended();
  }

  SharedParts parts_;
};

/// All-reduce. Each rank reduces its slice of all tensors in place, then reads the reduced slices
/// of its peers. For small tensors, every rank reduces the whole tensor.
class AllReduce : public Collective {
 public:
  AllReduce(
      const Group& group,
      const at::Tensor& tensor,
      Reduce how,
      uint64_t count,
      const ResultReader& reader)
      : Collective(
            group,
            c10d::OpType::ALLREDUCE,
            tensor,
            offer_key(Sequence::kOthers, count),
            offer_signature(Verb::kAllReduce, tensor, static_cast<int>(how))),
        how_(how),
        reader_(reader) {}

 private:
  bool go_on_announced(SharedBoard& board) override {
    return bytes() <= kSmallOperation ? go_on_whole(board) : go_on_in_slices(board);
  }

  bool go_on_whole(SharedBoard& board) {
    if (!summed_ && parts_.find_all(board)) {
      whole_.resize(bytes());
      parts_.reduce(board, how_, 0, bytes(), whole_.data(), nullptr);
      summed_ = true;
      parts_.take_all(board);
    }
    // The tensor is overwritten only after all peers have read it.
    if (!summed_ || !parts_.ended()) {
      return false;
    }
    std::memcpy(bytes_of(parts_.offered()), whole_.data(), whole_.size());
    if (reader_) {
      const auto [begin, end] = slice(board, board.rank());
      reader_(element(begin), element(end));
    }
    return true;
  }

  bool go_on_in_slices(SharedBoard& board) {
    char* tensor = bytes_of(parts_.offered());
    if (!summed_ && parts_.find_all(board)) {
      const auto [begin, end] = slice(board, board.rank());
      const auto read = [this, first = element(begin)](int64_t from, int64_t to) {
        reader_(first + from, first + to);
      };
      parts_.reduce(
          board,
          how_,
          begin,
          end - begin,
          tensor + begin,
          reader_ ? ResultReader(read) : ResultReader());
      summed_ = true;
      parts_.mine().stage.store(1, std::memory_order_release);
      board.ring_peers();
    }
    for (int peer = 0; summed_ && peer < board.size(); ++peer) {
      // A peer that has reduced its slice no longer reads this rank's copy of that slice, so the
      // copy may be overwritten.
      if (peer != board.rank() && !parts_.took(peer) &&
          parts_.find(board, peer)->stage.load(std::memory_order_acquire) == 1) {
        const auto [begin, end] = slice(board, peer);
        parts_.read(board, peer, begin, end - begin, tensor + begin);
        parts_.take(board, peer);
      }
    }
    return summed_ && parts_.ended();
  }

  /// Returns the byte range [begin, end) that a rank reduces.
  std::pair<uint64_t, uint64_t> slice(const SharedBoard& board, int rank) const {
    const uint64_t width = parts_.offered().element_size(), n = bytes() / width;
    const auto at = [&](int r) {
      return n * static_cast<uint64_t>(r) / static_cast<uint64_t>(board.size()) * width;
    };
    return {at(rank), at(rank + 1)};
  }

  int64_t element(uint64_t byte) const {
    return static_cast<int64_t>(byte / parts_.offered().element_size());
  }

  Reduce how_;
  ResultReader reader_;
  bool summed_ = false;
  std::vector<char> whole_;
};

class Gather : public Collective {
 public:
  Gather(const Group& group, at::Tensor out, const at::Tensor& in, uint64_t count)
      : Collective(
            group,
            c10d::OpType::_ALLGATHER_BASE,
            in,
            offer_key(Sequence::kGathers, count),
            offer_signature(Verb::kAllGather, in)),
        out_(std::move(out)) {}

 private:
  bool go_on_announced(SharedBoard& board) override { return read_each(board, 0, bytes(), out_); }

  at::Tensor out_;
};

class ReduceScatter : public Collective {
 public:
  ReduceScatter(
      const Group& group,
      at::Tensor out,
      const at::Tensor& in,
      Reduce how,
      uint64_t count,
      const ResultReader& reader)
      : Collective(
            group,
            c10d::OpType::_REDUCE_SCATTER_BASE,
            in,
            offer_key(Sequence::kReductions, count),
            offer_signature(Verb::kReduceScatter, in, static_cast<int>(how))),
        how_(how),
        reader_(reader),
        out_(std::move(out)) {}

 private:
  bool go_on_announced(SharedBoard& board) override {
    if (!summed_ && parts_.find_all(board)) {
      const uint64_t part = out_.nbytes(), begin = static_cast<uint64_t>(board.rank()) * part;
      parts_.reduce(board, how_, begin, part, bytes_of(out_), reader_);
      summed_ = true;
      parts_.take_all(board);
    }
    return summed_ && parts_.ended();
  }

  Reduce how_;
  ResultReader reader_;
  at::Tensor out_;
  bool summed_ = false;
};

/// Sum into a separate tensor. Every rank reduces the whole tensors.
class SumByAll : public Collective {
 public:
  SumByAll(const Group& group, at::Tensor out, const at::Tensor& in, uint64_t count)
      : Collective(
            group,
            c10d::OpType::ALLREDUCE,
            in,
            offer_key(Sequence::kOthers, count),
            offer_signature(Verb::kSumByAll, in)),
        out_(std::move(out)) {}

 private:
  bool go_on_announced(SharedBoard& board) override {
    if (!summed_ && parts_.find_all(board)) {
      parts_.reduce(board, Reduce::kSum, 0, bytes(), bytes_of(out_), nullptr);
      summed_ = true;
      parts_.take_all(board);
    }
    return summed_ && parts_.ended();
  }

  at::Tensor out_;
  bool summed_ = false;
};

class AllToAll : public Collective {
 public:
  AllToAll(const Group& group, at::Tensor out, const at::Tensor& in, uint64_t count)
      : Collective(
            group,
            c10d::OpType::ALLTOALL_BASE,
            in,
            offer_key(Sequence::kOthers, count),
            offer_signature(Verb::kAllToAll, in)),
        out_(std::move(out)) {}

 private:
  bool go_on_announced(SharedBoard& board) override {
    const uint64_t part = bytes() / static_cast<uint64_t>(board.size());
    return read_each(board, static_cast<uint64_t>(board.rank()) * part, part, out_);
  }

  at::Tensor out_;
};

/// Broadcast. Only the root posts an offer.
class Broadcast : public SharedOperation {
 public:
  Broadcast(const Group& group, const at::Tensor& tensor, int root, uint64_t count)
      : SharedOperation(group, c10d::OpType::BROADCAST),
        root_(root),
        is_root_(group.rank == root),
        parts_(
            group.rank,
            group.size,
            tensor,
            offer_key(Sequence::kOthers, count),
            offer_signature(Verb::kBroadcast, tensor, root)) {}

  void announce(SharedBoard& board) override {
    if (is_root_) {
      parts_.announce(board);
    }
  }
  bool go_on(SharedBoard& board) override {
    if (is_root_) {
      if (!parts_.announced() || parts_.unread() != 0) {
        return false;
      }
      SharedBoard::take_back(parts_.mine());
      return true;
    }
    if (parts_.find(board, root_) == nullptr) {
      return false;
    }
    parts_.read(board, root_, 0, bytes(), bytes_of(parts_.offered()));
    parts_.take(board, root_);
    return true;
  }
  uint64_t missing() const override { return is_root_ ? parts_.unread() : rank_bit(root_); }
  uint64_t bytes() const override { return parts_.offered().nbytes(); }

 private:
  int root_;
  bool is_root_;
  SharedParts parts_;
};

class Send : public SharedOperation {
 public:
  Send(const Group& group, at::Tensor tensor, int to, int tag)
      : SharedOperation(group, c10d::OpType::SEND),
        tensor_(std::move(tensor)),
        to_(to),
        key_(message_key(to, tag)) {}

  void announce(SharedBoard& board) override {
    if (mine_ == nullptr) {
      mine_ = board.offer(
          key_, offer_signature(Verb::kSend, tensor_), tensor_.data_ptr(), tensor_.nbytes());
      if (mine_ != nullptr) {
        board.ring(to_);
      }
    }
  }
  bool go_on(SharedBoard& /*board*/) override {
    if (mine_ == nullptr || mine_->taken_by.load(std::memory_order_acquire) == 0) {
      return false;
    }
    SharedBoard::take_back(*mine_);
    return true;
  }
  uint64_t missing() const override { return rank_bit(to_); }
  uint64_t bytes() const override { return tensor_.nbytes(); }

 private:
  at::Tensor tensor_;
  int to_;
  uint64_t key_;
  Offer* mine_ = nullptr;
};

class Receive : public SharedOperation {
 public:
  Receive(const Group& group, at::Tensor tensor, int from, int tag)
      : SharedOperation(group, c10d::OpType::RECV),
        tensor_(std::move(tensor)),
        from_(from),
        key_(message_key(group.rank, tag)) {}

  void announce(SharedBoard& /*board*/) override {}
  bool go_on(SharedBoard& board) override {
    Offer* offer = board.find(from_, key_);
    if (offer == nullptr) {
      return false;
    }
    if (offer->bytes != tensor_.nbytes()) {
      throw std::runtime_error(fmt::format(
          "rank {} of the group sends {} bytes, but {} are expected",
          from_,
          offer->bytes,
          tensor_.nbytes()));
    }
    board.read(from_, offer->address, tensor_.data_ptr(), tensor_.nbytes());
    board.take(from_, *offer);
    return true;
  }
  std::optional<Line> line() const override { return Line(from_, key_); }
  uint64_t missing() const override { return rank_bit(from_); }
  uint64_t bytes() const override { return tensor_.nbytes(); }

 private:
  at::Tensor tensor_;
  int from_;
  uint64_t key_;
};

}  // namespace

using OperationPtr = c10::intrusive_ptr<SharedOperation>;

OperationPtr shared_all_reduce(
    const Group& group,
    const at::Tensor& tensor,
    Reduce reduce,
    uint64_t count,
    const ResultReader& reader) {
  return c10::make_intrusive<AllReduce>(group, tensor, reduce, count, reader);
}

OperationPtr shared_sum_by_all(
    const Group& group, const at::Tensor& out, const at::Tensor& in, uint64_t count) {
  return c10::make_intrusive<SumByAll>(group, out, in, count);
}

OperationPtr shared_all_gather(
    const Group& group, const at::Tensor& out, const at::Tensor& in, uint64_t count) {
  return c10::make_intrusive<Gather>(group, out, in, count);
}

OperationPtr shared_reduce_scatter(
    const Group& group,
    const at::Tensor& out,
    const at::Tensor& in,
    Reduce reduce,
    uint64_t count,
    const ResultReader& reader) {
  return c10::make_intrusive<ReduceScatter>(group, out, in, reduce, count, reader);
}

OperationPtr shared_broadcast(
    const Group& group, const at::Tensor& tensor, int root, uint64_t count) {
  return c10::make_intrusive<Broadcast>(group, tensor, root, count);
}

OperationPtr shared_all_to_all(
    const Group& group, const at::Tensor& out, const at::Tensor& in, uint64_t count) {
  return c10::make_intrusive<AllToAll>(group, out, in, count);
}

OperationPtr shared_send(const Group& group, const at::Tensor& tensor, int to, int tag) {
  return c10::make_intrusive<Send>(group, tensor, to, tag);
}

OperationPtr shared_receive(const Group& group, const at::Tensor& tensor, int from, int tag) {
  return c10::make_intrusive<Receive>(group, tensor, from, tag);
}

}  // namespace lockstep::comm
