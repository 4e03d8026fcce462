// Operations between ranks that read each other's memory.
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

/// Operations up to this size run at once on the calling thread, an all-reduce in one step.
constexpr uint64_t kSmallOperation = uint64_t{16} << 10;

/// An operation in flight. It advances when go_on() is called, as far as the peers allow.
class SharedOperation : public c10d::Work {
 public:
  /// Waits for operations and advances all of them meanwhile.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// Blocks until operation.done; throws its failure.
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

  /// Publishes the offer if it is not published yet and a slot is free.
  virtual void announce(SharedBoard& board) = 0;
  /// Returns true if nothing is left to do by this rank and for it. Throws std::runtime_error if
  /// the peers run another operation or have left.
  virtual bool go_on(SharedBoard& board) = 0;
  /// The key of operations that must run sequentially: a later receive must not get a message while
  /// an earlier receive with the same peer and tag waits.
  using Line = std::pair<int, uint64_t>;
  virtual std::optional<Line> line() const { return std::nullopt; }
  /// Bit mask of the ranks that have not arrived.
  virtual uint64_t missing() const = 0;
  /// Those of them for which this rank itself waits.
  virtual uint64_t awaited() const { return missing(); }
  virtual uint64_t bytes() const = 0;

  std::atomic<bool> done = false;
  std::exception_ptr failure;  // set before `done`

 private:
  Waiter* waiter_;
};

/// `count`: index of the call among those of its kind, per group. Gathers, reduce-scatters, and
/// all-reduces with broadcasts and all-to-alls are counted separately. Tensors are contiguous and
/// live until the end. Aliasing is allowed as in Communicator. A reader, if set, receives what this
/// rank sums.
c10::intrusive_ptr<SharedOperation> shared_all_reduce(
    const SharedOperation::Group& group,
    const at::Tensor& tensor,
    Reduce reduce,
    uint64_t count,
    const ResultReader& reader);
/// Sums into another tensor. Each rank reads all of every peer: one step instead of an all-reduce's
/// two, and between two ranks the same number of bytes.
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
