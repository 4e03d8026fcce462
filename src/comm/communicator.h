// Collectives and point-to-point messages over a group of ranks. In a group of one rank every
// operation is the identity and sends nothing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "comm/process_group.h"
#include "comm/sums.h"

namespace lockstep::comm {

using at::Tensor;
class SharedMemoryBackend;

/// Description of a call, passed to the observer before the call starts.
struct Call {
  std::string_view operation;  // "all_reduce", ...
  int64_t sequence;            // index of the call, counted per communicator
  int64_t bytes;               // size of the caller's tensor (the larger of in and out)
  int64_t bytes_sent;          // bytes that this rank sends in a ring algorithm
};
using Observer = std::function<void(const Call&)>;

/// A completed call, passed to the finish observer. Times are seconds of the steady clock.
struct Finished {
  std::string_view operation, group;
  std::string_view what;      // name of the data: Pending::set_name
  int64_t bytes, bytes_sent;  // as in Call
  double began;               // start of the call
  double waited_from;         // start of wait()
  double ended;
};
using FinishObserver = std::function<void(const Finished&)>;

/// Handle of a collective in flight. wait() blocks until the result is in the tensor; on a GPU it
/// makes the current stream wait for the collective. It throws Error (peer lost) with rank,
/// operation, sequence number and shape if the collective fails. If a Pending is dropped without
/// wait(), failures are not reported.
class [[nodiscard]] Pending {
 public:
  Pending() = default;
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;
  void wait();
  /// Names the data for observers: "layer 3".
  void set_name(std::string_view name) { name_ = name; }
  bool in_flight() const { return work_ != nullptr; }

 private:
  friend class Communicator;
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;           // runs after the work has ended
  std::function<std::string()> describe_;  // for error messages
  std::function<void(double seconds)> waited_;
  std::string name_;
  std::function<void(const std::string& name, double waited_from, double ended)> finished_;
  std::function<int(const std::string& name)> tell_wait_;  // records the wait in the rank status
  bool on_device_ = false;  // wait() blocks the device's stream, not the host
};

struct P2p {
  enum class Direction { kSend, kReceive } direction;
  Tensor tensor;
  int peer;
  int tag = 0;
};

/// Collectives of one group. Every rank of the group must call the same operations in the same
/// order, with tensors of the same shape and type. Tensors must be contiguous and stay alive until
/// wait(). Not thread-safe: each rank must call from one thread.
class Communicator {
 public:
  /// `options` must be those with which the group was joined.
  explicit Communicator(ProcessGroup group, GroupOptions options = {}, std::string name = "world");
  /// Returns a group of one rank.
  static Communicator alone();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  int world_rank(int rank) const {
    const std::vector<int>& ranks = options_.world_ranks;
    return ranks.empty() ? rank : ranks.at(static_cast<size_t>(rank));
  }

  /// The reader receives each element of the result on exactly one rank, in ranges, before wait()
  /// returns. It may run on another thread. With shared memory it receives elements as soon as they
  /// are reduced.
  Pending all_reduce(
      Tensor tensor, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  /// All-reduces `in` into `out`, a different tensor; `in` is unchanged.
  Pending sum_into(Tensor out, Tensor in);
  /// `out` has size() times the elements of `in` and receives them in rank order. `in` may be this
  /// rank's slice of `out`.
  Pending all_gather(Tensor out, Tensor in);
  /// `in` has size() times the elements of `out`; `out` may be this rank's slice of `in`. In host
  /// memory, bfloat16 and float16 are added in float32, in rank order. The reader receives every
  /// element of `out`.
  Pending reduce_scatter(
      Tensor out, Tensor in, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  Pending broadcast(Tensor tensor, int root);
  /// Sends slice r of `in` to rank r and receives slice r of `out` from rank r. Slices along the
  /// first dimension have equal size.
  Pending all_to_all(Tensor out, Tensor in);
  /// Starts all sends and receives together.
  Pending exchange(std::span<const P2p> transfers);
  /// Blocks until every rank of the group has called it.
  void barrier();

  /// Sets the observer of every call. There is at most one; an empty function removes it.
  void set_observer(Observer observer) { watch_->observer = std::move(observer); }
  /// Sets the observer of calls that start from now on; it runs when their wait() returns. There is
  /// at most one; an empty function removes it.
  void set_finish_observer(FinishObserver observer) {
    watch_->finish_observer = std::move(observer);
  }
  /// Shares the observers and the wait counter of `other`, now and later.
  void be_watched_with(const Communicator& other) { watch_ = other.watch_; }
  /// Total seconds spent in wait().
  double seconds_waited() const { return watch_->seconds_waited; }
  const ProcessGroup& process_group() const { return group_; }
  const GroupOptions& options() const { return options_; }

 private:
  Communicator() = default;
  Pending start(
      std::string_view operation,
      const Tensor& shape_of,
      double ring_factor,
      const std::function<c10::intrusive_ptr<c10d::Work>()>& call,
      std::span<const P2p> transfers = {});
  /// Records the start of a call in the rank status and prepares recording its wait.
  void set_rank_phase(
      Pending& pending,
      std::string_view operation,
      int64_t sequence,
      const Tensor& shape_of,
      std::span<const P2p> transfers);

  ProcessGroup group_;
  std::string name_ = "alone";
  int rank_ = 0, size_ = 1;
  GroupOptions options_;
  SharedMemoryBackend* shared_ = nullptr;  // backend of host tensors, if it is shared memory
  bool sends_pairwise_ = false;            // host tensors are sent over Gloo
  int64_t sequence_ = 0;
  int64_t gathers_ = 0, reductions_ = 0;  // pairwise calls so far
  /// Observers of the group and of the lanes between its ranks.
  struct Watch {
    Observer observer;
    FinishObserver finish_observer;
    double seconds_waited = 0;
  };
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  struct ToldGroup;
  std::shared_ptr<const ToldGroup> told_;  // entry in the rank status; null: none
};

/// Returns the strings of all ranks, in rank order. Every rank must call.
std::vector<std::string> gather_strings(Communicator& communicator, const std::string& text);
/// Returns rank 0's string on every rank. Every rank must call.
std::string broadcast_string(Communicator& communicator, const std::string& text);
/// Checks on all ranks that a local step succeeded on every rank. `failure` is this rank's error,
/// or empty on success. If any rank failed, every rank throws an Error of `kind` with the number
/// and error of the first failed rank, and the hint `remedy`.
void agree_on_success(
    Communicator& communicator,
    const std::string& failure,
    ErrorKind kind,
    const std::string& remedy = "");

}  // namespace lockstep::comm
