// Collectives in host memory between the ranks of one node. Each rank reads its peers' tensors
// directly and reduces while reading, with a single copy, no sockets, and a buffer that fits in the
// cache.
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

/// c10d backend that uses a SharedBoard. An operation starts when it is called and progresses on
/// the backend's background thread or on a waiting thread. Sums are computed in rank order, and in
/// float32 for bfloat16 and float16, so that all ranks get bit-identical results. Errors name a
/// peer that has left, or that started a different operation or size. A timeout names the world
/// ranks that did not arrive, and the ranks for which these wait.
class SharedMemoryBackend : public c10d::Backend, private SharedOperation::Waiter {
 public:
  static constexpr const char* kName = "lockstep_shared_memory";

  SharedMemoryBackend(std::unique_ptr<SharedBoard> board, GroupOptions options);
  ~SharedMemoryBackend() override;

  const std::string getBackendName() const override { return kName; }

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  /// Variant with a reader, which receives the elements that this rank reduces as soon as they are
  /// ready. It may run on another thread before the work completes.
  c10::intrusive_ptr<c10d::Work> all_reduce(
      const at::Tensor& tensor, Reduce reduce, const ResultReader& reader);
  /// All-reduces `in` into `out` in one step.
  c10::intrusive_ptr<c10d::Work> sum_by_all(const at::Tensor& out, const at::Tensor& in);
  /// Variant with a reader, which receives all elements of `out`.
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      const at::Tensor& out, const at::Tensor& in, Reduce reduce, const ResultReader& reader);
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  /// Supports only slices of equal size.
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

  /// Lock of the thread that advances the operations. A thread that finds it locked goes to sleep,
  /// but the owner may already have passed the event that woke that thread. unlock() therefore
  /// rings this rank's bell if any try_lock() failed.
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
  /// Advances each operation until it has to wait for peers. The caller must hold progress_.
  void go_on(uint64_t lost);
  void run_background();
  int world_rank(int rank) const;
  /// Returns the world rank that is the cause of a wait, determined from the waits that ranks
  /// publish: one of the awaited ranks, or a rank for which they wait in any group.
  int root_of(uint64_t awaited) const;
  std::string names_of(uint64_t ranks) const;
  /// Returns an explanation of why a rank left while its peers still needed it.
  std::string why_gone(int rank);
  void tell_wait(int whom, bool gave_up);
  [[noreturn]] void give_up(SharedOperation& operation, std::chrono::milliseconds waited);

  std::unique_ptr<SharedBoard> board_;
  const GroupOptions options_;
  uint64_t gathers_ = 0, reductions_ = 0, others_ = 0;
  std::mutex list_;  // protects `operations_`
  Progress progress_{*board_};
  std::list<OperationPtr> operations_;
  std::vector<OperationPtr> failed_;  // kept so that their tensors stay alive while peers may read
                                      // them
  std::atomic<bool> ends_ = false;
  std::thread background_;
};

}  // namespace lockstep::comm
