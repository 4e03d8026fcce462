// The operations of ranks that read each other's memory: what each offers on the board, and what it
// reads when.
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

/// Up to so many bytes an operation is done at once, by the thread that begins it; an all-reduce in
/// one step.
constexpr uint64_t kSmallOperation = uint64_t{16} << 10;

/// One that has begun. It goes on when go_on() is called, as far as its peers allow.
class SharedOperation : public c10d::Work {
 public:
  /// Who waits for operations, and takes all of them on meanwhile.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// Until operation.done; throws what it failed of.
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

  /// Lets the peers know, where it has not yet and there is room.
  virtual void announce(SharedBoard& board) = 0;
  /// True where nothing is left to do, by this rank and for it. Throws std::runtime_error where the
  /// peers do something else, or have ended.
  virtual bool go_on(SharedBoard& board) = 0;
  /// What operations that go on one after the other have in common: a message is not to be taken by
  /// a later receive while an earlier one of the same peer and tag waits.
  using Line = std::pair<int, uint64_t>;
  virtual std::optional<Line> line() const { return std::nullopt; }
  /// Ranks whose part is still to come, a bit a rank.
  virtual uint64_t missing() const = 0;
  /// Of those, the ones that this rank waits for: others wait as it does.
  virtual uint64_t awaited() const { return missing(); }
  virtual uint64_t bytes() const = 0;

  std::atomic<bool> done = false;
  std::exception_ptr failure;  // set before done

 private:
  Waiter* waiter_;
};

/// `count`: index of the call of its kind, counted per group; gathers, reduce-scatters, and
/// all-reduces with broadcasts and all-to-alls are counted apart. Tensors are contiguous and live
/// until the end. What may be what else's part: as in Communicator. A reader, which may be empty,
/// is told of what this rank sums.
c10::intrusive_ptr<SharedOperation> shared_all_reduce(
    const SharedOperation::Group& group,
    const at::Tensor& tensor,
    Reduce reduce,
    uint64_t count,
    const ResultReader& reader);
/// The sum into another tensor. Each rank reads all of every other: one step where an all-reduce
/// has two, and of two ranks no more bytes.
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
/// Messages from one rank to another under one tag keep their order.
c10::intrusive_ptr<SharedOperation> shared_send(
    const SharedOperation::Group& group, const at::Tensor& tensor, int to, int tag);
c10::intrusive_ptr<SharedOperation> shared_receive(
    const SharedOperation::Group& group, const at::Tensor& tensor, int from, int tag);

}  // namespace lockstep::comm
