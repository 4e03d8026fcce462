// Collectives and point-to-point messages in a group of ranks. In a group of one rank, every
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

/// Description of a call, passed to the observer when the call starts.
struct Call {
  std::string_view operation;  // "all_reduce", ...
  int64_t sequence;            // index of the call in this communicator
  int64_t bytes;               // size of the caller's tensor (the larger one of in and out)
  int64_t bytes_sent;          // number of bytes that this rank would send with a ring algorithm
};
using Observer = std::function<void(const Call&)>;

/// A completed call, passed to the finish observer. Times are in seconds of the steady clock.
struct Finished {
  std::string_view operation, group;
  std::string_view what;      // name of the data, set by Pending::set_name
  int64_t bytes, bytes_sent;  // same as in Call
  double began;               // the call started
  double waited_from;         // wait() started
  double ended;
};
using FinishObserver = std::function<void(const Finished&)>;

/// Handle of a collective in flight. wait() blocks until the result is in the tensor; on a GPU, it
/// makes the current stream wait for the collective. If the collective fails, wait() throws Error
/// (peer lost) with rank, operation, sequence number and shape. Failures are not reported if a
/// Pending is destroyed without a call of wait().
class [[nodiscard]] Pending {
 public:
  Pending() = default;
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;
  void wait();
  /// Sets the name of the data for observers, for example "layer 3".
  void set_name(std::string_view name) { name_ = name; }
  bool in_flight() const { return work_ != nullptr; }

 private:
  friend class Communicator;
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;           // runs after `work_` has ended
  std::function<std::string()> describe_;  // returns the description of the call for error messages
  std::function<void(double seconds)> waited_;
  std::string name_;
  std::function<void(const std::string& name, double waited_from, double ended)> finished_;
  std::function<int(const std::string& name)> tell_wait_;  // records the wait in the rank status
                                                           // and returns its index
  bool on_device_ = false;  // wait() blocks the stream of the device, not the host
};

struct P2p {
  enum class Direction { kSend, kReceive } direction;
  Tensor tensor;
  int peer;
  int tag = 0;
};

/// Collectives of one group. All ranks of the group must call the same operations in the same
/// order, with tensors of the same shape and type. Tensors must be contiguous and stay alive until
/// wait() returns. Not thread-safe.
class Communicator {
 public:
  /// `options` must be those with which the group was joined.
  explicit Communicator(ProcessGroup group, GroupOptions options = {}, std::string name = "world");
  /// Returns a communicator for a group of one rank.
  static Communicator alone();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  int world_rank(int rank) const {
    const std::vector<int>& ranks = options_.world_ranks;
    return ranks.empty() ? rank : ranks.at(static_cast<size_t>(rank));
  }

  /// All-reduces `tensor` in place. `reader` receives each element of the result on exactly one
  /// rank, in ranges, before wait() returns. It may run on another thread. With shared memory, it
  /// receives elements as soon as they are reduced.
  Pending all_reduce(
      Tensor tensor, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  /// All-reduces `in` into `out`, which must be a different tensor. `in` is not modified.
  Pending sum_into(Tensor out, Tensor in);
  /// Gathers `in` from all ranks into `out` in rank order. `out` has size() times as many elements
  /// as `in`. `in` may be this rank's slice of `out`.
  Pending all_gather(Tensor out, Tensor in);
  /// Reduces `in` over the ranks and stores this rank's slice in `out`. `in` has size() times as
  /// many elements as `out`. `out` may be this rank's slice of `in`. In host memory, bfloat16 and
  /// float16 are summed in float32, in rank order. `reader` receives every element of `out`.
  Pending reduce_scatter(
      Tensor out, Tensor in, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  Pending broadcast(Tensor tensor, int root);
  /// Sends slice r of `in` to rank r and receives slice r of `out` from rank r. The slices are
  /// along the first dimension and have equal size.
  Pending all_to_all(Tensor out, Tensor in);
  /// Starts all sends and receives together.
  Pending exchange(std::span<const P2p> transfers);
  /// Blocks until all ranks of the group have called it.
  void barrier();

  /// Sets the observer of all calls. It replaces the previous one; an empty function removes it.
  void set_observer(Observer observer) { watch_->observer = std::move(observer); }
  /// Sets the observer of calls that start from now on. It runs when their wait() returns. It
  /// replaces the previous one; an empty function removes it.
  void set_finish_observer(FinishObserver observer) {
    watch_->finish_observer = std::move(observer);
  }
  /// Shares the current and future observers and the wait counter of `other`.
  void be_watched_with(const Communicator& other) { watch_ = other.watch_; }
  /// Returns the total number of seconds spent in wait().
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
  /// Records the start of a call in the rank status, and prepares to record its wait.
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
  SharedMemoryBackend* shared_ = nullptr;  // backend of host tensors; null if it is not shared
                                           // memory
  bool sends_pairwise_ = false;            // true: host tensors are sent over Gloo
  int64_t sequence_ = 0;
  int64_t gathers_ = 0, reductions_ = 0;  // number of pairwise calls so far
  /// Observers, shared by the group and the lanes between its ranks.
  struct Watch {
    Observer observer;
    FinishObserver finish_observer;
    double seconds_waited = 0;
  };
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  struct ToldGroup;
  std::shared_ptr<const ToldGroup> told_;  // entry of this group in the rank status; null: none
};

/// Returns the strings of all ranks in rank order. Must be called on every rank.
std::vector<std::string> gather_strings(Communicator& communicator, const std::string& text);
/// Returns rank 0's string on every rank. Must be called on every rank.
std::string broadcast_string(Communicator& communicator, const std::string& text);
/// Checks that a local step succeeded on all ranks. `failure` is this rank's error, or empty on
/// success. If any rank failed, all ranks throw an Error of `kind` with the number and the error of
/// the first failed rank, and the hint `remedy`. Must be called on every rank.
void agree_on_success(
    Communicator& communicator,
    const std::string& failure,
    ErrorKind kind,
    const std::string& remedy = "");

}  // namespace lockstep::comm
