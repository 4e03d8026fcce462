// Collectives between the ranks of one machine in host memory: each reads its peers' tensors where
// they lie, and adds up as it reads. One copy, no socket, no buffer of its own but a cache's worth.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/process_group.h"
#include "comm/shared_board.h"
#include "comm/shared_operations.h"

namespace lockstep::comm {

/// A backend of c10d over a SharedBoard. Operations begin when they are called; they go on in a
/// thread of this backend's, or in the thread that waits. Sums are in rank order, bfloat16 and
/// float16 in float32, so that all ranks have the same bits. A peer that begins another operation
/// than this rank, or the same on another size, is named in the error; so is one that has left. Who
/// gives up names the ranks of the world that did not come, and whom those wait for in turn.
class SharedMemoryBackend : public c10d::Backend, private SharedOperation::Waiter {
 public:
  static constexpr const char* kName = "lockstep_shared_memory";

  SharedMemoryBackend(std::unique_ptr<SharedBoard> board, GroupOptions options);
  ~SharedMemoryBackend() override;

  const std::string getBackendName() const override { return kName; }

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  /// The same, and `reader` is told of the elements that this rank sums, as it does: another
  /// thread may call it, before the work has ended.
  c10::intrusive_ptr<c10d::Work> all_reduce(
      const at::Tensor& tensor, Reduce reduce, const ResultReader& reader);
  /// The sum into another tensor, in one step.
  c10::intrusive_ptr<c10d::Work> sum_by_all(const at::Tensor& out, const at::Tensor& in);
  /// Of all elements of `out`.
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      const at::Tensor& out, const at::Tensor& in, Reduce reduce, const ResultReader& reader);
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  /// Equal parts alone.
  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& out,
      at::Tensor& in,
      std::vector<int64_t>& out_sizes,
      std::vector<int64_t>& in_sizes,
      const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

 private:
  using OperationPtr = c10::intrusive_ptr<SharedOperation>;

  /// Held by who takes operations on. A thread that finds it taken sleeps, while its holder may
  /// have passed by what peers rang for since: who lets go rings this rank's bell for it.
  class Progress {
   public:
    explicit Progress(const SharedBoard& board) : board_(board) {}
    void lock() { mutex_.lock(); }
    bool try_lock();
    void unlock();

   private:
    const SharedBoard& board_;
    std::mutex mutex_;
    std::atomic<bool> turned_away_ = false;
  };

  SharedOperation::Group group() { return {rank_, size_, this}; }
  OperationPtr start(OperationPtr operation);
  void wait_for(SharedOperation& operation, std::chrono::milliseconds timeout) override;
  /// Takes every operation on as far as its peers allow. Under progress_.
  void go_on(uint64_t lost);
  void run_background();
  int world_rank(int rank) const;
  /// The rank of the world that the ranks awaited wait for at last, as far as they tell: one of
  /// themselves, or one that they wait for in any group.
  int root_of(uint64_t awaited) const;
  std::string names_of(uint64_t ranks) const;
  /// Of a rank that has left while others wanted something of it.
  std::string why_gone(int rank);
  void tell_wait(int whom, bool gave_up);
  [[noreturn]] void give_up(SharedOperation& operation, std::chrono::milliseconds waited);

  std::unique_ptr<SharedBoard> board_;
  const GroupOptions options_;
  uint64_t gathers_ = 0, reductions_ = 0, others_ = 0;
  std::mutex list_;  // of operations_
  Progress progress_{*board_};
  std::list<OperationPtr> operations_;
  std::vector<OperationPtr> failed_;  // their tensors live as long as peers may read them
  std::atomic<bool> ends_ = false;
  std::thread background_;
};

}  // namespace lockstep::comm
