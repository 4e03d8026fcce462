// Collectives and messages of a group of ranks. In a group of one every operation is the identity
// and nothing is sent.
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

/// A call as an observer sees it before it starts.
struct Call {
  std::string_view operation;  // "all_reduce", ...
  int64_t sequence;            // index of the call, counted per communicator
  int64_t bytes;               // size of the caller's tensor (the larger of in and out)
  int64_t bytes_sent;          // bytes that this rank sends in a ring algorithm
};
using Observer = std::function<void(const Call&)>;

/// A call that ended, with its times in seconds of the steady clock.
struct Finished {
  std::string_view operation, group;
  std::string_view what;      // name of the data: Pending::set_name
  int64_t bytes, bytes_sent;  // as in Call
  double began;               // start of the call
  double waited_from;         // start of wait()
  double ended;
};
using FinishObserver = std::function<void(const Finished&)>;

/// A collective in flight. wait() blocks until the result is in the tensor (on a GPU: makes the
/// current stream wait for it), or throws Error (peer lost) with rank, operation, sequence number
/// and shape. If a Pending is dropped without wait(), failures go unreported.
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
/// order, with tensors of the same shape and type. Tensors must be contiguous and live until
/// wait(). Not thread-safe: one thread per rank calls.
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

  /// The reader receives each element of the result on exactly one rank, before wait() returns, in
  /// ranges, possibly on another thread. Between ranks of one machine it receives them as they are
  /// computed.
  Pending all_reduce(
      Tensor tensor, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  /// All-reduces `in` into `out`, a different tensor; `in` is unchanged.
  Pending sum_into(Tensor out, Tensor in);
  /// out: size() times `in`, in rank order; `in` may be this rank's slice of `out`.
  Pending all_gather(Tensor out, Tensor in);
  /// in: size() times `out`, which may be this rank's slice of `in`. In host memory, bfloat16 and
  /// float16 are added in float32 in rank order. The reader receives every element of `out`, as
  /// above.
  Pending reduce_scatter(
      Tensor out, Tensor in, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  Pending broadcast(Tensor tensor, int root);
  /// Slice r of `in` goes to rank r; slice r of `out` comes from rank r. Slices are equal along the
  /// first dimension.
  Pending all_to_all(Tensor out, Tensor in);
  /// Starts all sends and receives together.
  Pending exchange(std::span<const P2p> transfers);
  /// Blocks until every rank has called it.
  void barrier();

  /// Observes every call. There is one observer at a time; an empty function removes it.
  void set_observer(Observer observer) { watch_->observer = std::move(observer); }
  /// Observes the end of every call that starts after this one. There is one observer at a time; an
  /// empty function removes it.
  void set_finish_observer(FinishObserver observer) {
    watch_->finish_observer = std::move(observer);
  }
  /// Observers of `other`, present and future, also observe this group and count its waits.
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
  /// Records in the rank status that a call starts, and how to describe it while it is pending.
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
  SharedMemoryBackend* shared_ = nullptr;  // handles host tensors; null: another backend does
  bool sends_pairwise_ = false;            // host tensors are sent over Gloo
  int64_t sequence_ = 0;
  int64_t gathers_ = 0, reductions_ = 0;  // calls with host tensors
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

/// Gathers every rank's string on every rank, in rank order. Every rank must call.
std::vector<std::string> gather_strings(Communicator& communicator, const std::string& text);
/// Returns rank 0's string on every rank.
std::string broadcast_string(Communicator& communicator, const std::string& text);
/// Agrees on the success of a step that each rank did by itself. `failure` is empty on success. If
/// the step failed on any rank, every rank throws an Error of `kind` with the first failed rank,
/// its reason and its hint.
void agree_on_success(
    Communicator& communicator,
    const std::string& failure,
    ErrorKind kind,
    const std::string& remedy = "");

}  // namespace lockstep::comm
