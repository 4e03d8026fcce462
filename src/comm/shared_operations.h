// Collectives and point-to-point operations of ranks that read each other's memory through a shared
// board.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm/shared_board.h"
#include "comm/sums.h"

namespace lockstep::comm {

/// Operations of at most this many bytes run immediately on the calling thread, and all-reduces of
/// this size use a single step.
constexpr uint64_t kSmallOperation = uint64_t{16} << 10;

/// An operation in progress. Each call of go_on() advances it until it has to wait for peers.
class SharedOperation : public c10d::Work {
 public:
  /// Waits for an operation and meanwhile advances all operations.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// Blocks until operation.done is true. Throws the operation's failure, if any.
    virtual void wait_for(SharedOperation& operation, std::chrono::milliseconds timeout) = 0;
  };
  struct Group {
    int rank, size;
    Waiter* waiter;
  };

  SharedOperation(const Group& group, c10d::OpType type)
      : c10d::Work(group.rank, type),
        waiter_(group.waiter) {}

  bool wait(std::chrono::milliseconds timeout) override {
    waiter_->wait_for(*this, timeout);
    return true;
  }
  bool isCompleted() override { return done; }

  /// Posts the offer if it has not been posted and a slot is free.
  virtual void announce(SharedBoard& board) = 0;
  /// Advances the operation. Returns true when neither this rank nor a peer has work left. Throws
  /// std::runtime_error if a peer started a different operation or has left.
  virtual bool go_on(SharedBoard& board) = 0;
  /// Key of operations that must progress in order: a later receive must not take a message while
  /// an earlier receive with the same peer and tag is waiting.
  using Line = std::pair<int, uint64_t>;
  virtual std::optional<Line> line() const { return std::nullopt; }
  /// Returns the ranks that have not finished the operation, one bit per rank.
  virtual uint64_t missing() const = 0;
  /// Returns the missing ranks that delay this rank. The other missing ranks are waiting
  /// themselves.
  virtual uint64_t awaited() const { return missing(); }
  virtual uint64_t bytes() const = 0;

  std::atomic<bool> done = false;
  std::exception_ptr failure;  // must be set before `done`

 private:
  Waiter* waiter_;
};

/// `count` is the index of the call in the group, counted separately for gathers, for
/// reduce-scatters, and for all other collectives. Tensors must be contiguous and stay alive until
/// the operation completes. The aliasing rules are those of Communicator. `reader`, if set,
/// receives the elements that this rank reduces.
c10::intrusive_ptr<SharedOperation> shared_all_reduce(
    const SharedOperation::Group& group,
    const at::Tensor& tensor,
    Reduce reduce,
    uint64_t count,
    const ResultReader& reader);
/// Sums `in` of all ranks into `out`. Each rank reads the whole tensors of all peers. This takes
/// one step, while an all-reduce takes two and, with two ranks, reads as many bytes.
c10::intrusive_ptr<SharedOperation> shared_sum_by_all(
    const SharedOperation::Group& group,
    const at::Tensor& out,
    const at::Tensor& in,
    uint64_t count);
c10::intrusive_ptr<SharedOperation> shared_all_gather(
    const SharedOperation::Group& group,
    const at::Tensor& out,
    const at::Tensor& in,
    uint64_t count);
c10::intrusive_ptr<SharedOperation> shared_reduce_scatter(
    const SharedOperation::Group& group,
    const at::Tensor& out,
    const at::Tensor& in,
    Reduce reduce,
    uint64_t count,
    const ResultReader& reader);
c10::intrusive_ptr<SharedOperation> shared_broadcast(
    const SharedOperation::Group& group, const at::Tensor& tensor, int root, uint64_t count);
c10::intrusive_ptr<SharedOperation> shared_all_to_all(
    const SharedOperation::Group& group,
    const at::Tensor& out,
    const at::Tensor& in,
    uint64_t count);
/// Messages with the same source, destination and tag arrive in order.
c10::intrusive_ptr<SharedOperation> shared_send(
    const SharedOperation::Group& group, const at::Tensor& tensor, int to, int tag);
c10::intrusive_ptr<SharedOperation> shared_receive(
    const SharedOperation::Group& group, const at::Tensor& tensor, int from, int tag);

}  // namespace lockstep::comm
