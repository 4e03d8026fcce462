// Collectives between ranks of one machine in host memory: each rank reads its peers' tensors in
// place and adds while reading. One copy, no socket, and no buffer larger than a cache.
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

/// A c10d backend on a SharedBoard. Operations start when they are called and progress on the
/// backend's thread or on the waiting thread. Sums are in rank order, bfloat16 and float16 in
/// float32, so all ranks get the same bits. A peer that starts another operation, or the same with
/// another size, is named in the error, and so is a peer that has left. On timeout the error names
/// the world ranks that are missing and the ranks that those wait for.
class SharedMemoryBackend : public c10d::Backend, private SharedOperation::Waiter {
 public:
  static constexpr const char* kName = "lockstep_shared_memory";

  SharedMemoryBackend(std::unique_ptr<SharedBoard> board, GroupOptions options);
  ~SharedMemoryBackend() override;

  const std::string getBackendName() const override { return kName; }

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  /// The same; `reader` receives the elements that this rank sums as they are computed, possibly on
  /// another thread, before the work has ended.
  c10::intrusive_ptr<c10d::Work> all_reduce(
      const at::Tensor& tensor, Reduce reduce, const ResultReader& reader);
  /// All-reduces `in` into `out` in one step.
  c10::intrusive_ptr<c10d::Work> sum_by_all(const at::Tensor& out, const at::Tensor& in);
  /// `reader` receives all elements of `out`.
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      const at::Tensor& out, const at::Tensor& in, Reduce reduce, const ResultReader& reader);
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  /// Only equal slices.
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

  /// Mutex of the thread that advances operations. A thread that finds it locked sleeps. The holder
  /// may have missed an event meanwhile, so it rings this rank's bell when it unlocks.
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
  /// Advances every operation as far as the peers allow. progress_ must be locked.
  void go_on(uint64_t lost);
  void run_background();
  int world_rank(int rank) const;
  /// Returns the world rank for which the awaited ranks ultimately wait, based on what they
  /// publish: one of them, or a rank that they await in any group.
  int root_of(uint64_t awaited) const;
  std::string names_of(uint64_t ranks) const;
  /// Explains why a rank left while others needed it.
  std::string why_gone(int rank);
  void tell_wait(int whom, bool gave_up);
  [[noreturn]] void give_up(SharedOperation& operation, std::chrono::milliseconds waited);

  std::unique_ptr<SharedBoard> board_;
  const GroupOptions options_;
  uint64_t gathers_ = 0, reductions_ = 0, others_ = 0;
  std::mutex list_;  // protects operations_
  Progress progress_{*board_};
  std::list<OperationPtr> operations_;
  std::vector<OperationPtr> failed_;  // their tensors stay alive while peers may read them
  std::atomic<bool> ends_ = false;
  std::thread background_;
};

}  // namespace lockstep::comm
