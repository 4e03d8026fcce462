// Seven verbs over a group of ranks. On a group of one, every verb is the identity and nothing is
// sent.
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

/// What an observer is told of each call, before it starts.
struct Call {
  std::string_view operation;  // "all_reduce", ...
  int64_t sequence;            // index of the call, counted per communicator
  int64_t bytes;               // of the tensor that the caller gave (the larger of in and out)
  int64_t bytes_sent;          // from this rank, by a ring: the theory's count
};
using Observer = std::function<void(const Call&)>;

/// A call whose end was waited for, in seconds of the steady clock.
struct Finished {
  std::string_view operation, group;
  std::string_view what;      // was sent: Pending::set_name
  int64_t bytes, bytes_sent;  // as Call has them
  double began;               // the call
  double waited_from;         // wait()
  double ended;
};
using FinishObserver = std::function<void(const Finished&)>;

/// A collective in flight. wait() blocks until its result is in the tensor (on a GPU: orders the
/// current stream after it), or throws Error (peer lost) that names rank, operation, sequence
/// number and shape. A Pending that is dropped without wait() has said nothing of success.
class [[nodiscard]] Pending {
 public:
  Pending() = default;
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;
  void wait();
  /// Says what is sent, to those who watch: "layer 3".
  void set_name(std::string_view name) { name_ = name; }
  bool in_flight() const { return work_ != nullptr; }

 private:
  friend class Communicator;
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;           // what is to be done once the work has ended
  std::function<std::string()> describe_;  // for the error
  std::function<void(double seconds)> waited_;
  std::string name_;
  std::function<void(const std::string& name, double waited_from, double ended)> finished_;
  std::function<int(const std::string& name)> tell_wait_;  // to the process's pulse, if it has one
  bool on_device_ = false;  // wait() has a device wait, and not the host
};

struct P2p {
  enum class Direction { kSend, kReceive } direction;
  Tensor tensor;
  int peer;
  int tag = 0;
};

/// Collectives of one group. Every rank of the group must call the same verbs in the same order,
/// with tensors of the same shape and type. Tensors must be contiguous, and live until wait(). Not
/// thread-safe: one thread a rank calls.
class Communicator {
 public:
  /// `options`: those that the group was joined with.
  explicit Communicator(ProcessGroup group, GroupOptions options = {}, std::string name = "world");
  /// The group of one.
  static Communicator alone();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  int world_rank(int rank) const {
    const std::vector<int>& ranks = options_.world_ranks;
    return ranks.empty() ? rank : ranks.at(static_cast<size_t>(rank));
  }

  /// A reader is told of each element of the result on one rank, before wait() returns, in runs,
  /// perhaps by another thread; on the ranks of one machine as they are made.
  Pending all_reduce(
      Tensor tensor, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  /// The sum in `out`, another tensor; `in` stays as it is.
  Pending sum_into(Tensor out, Tensor in);
  /// out: size() times in, in rank order; `in` may be this rank's part of it.
  Pending all_gather(Tensor out, Tensor in);
  /// in: size() times out, which may be this rank's part of `in`. In host memory bfloat16 and
  /// float16 are added in float32, in rank order. A reader is told of every element of `out`, as
  /// above.
  Pending reduce_scatter(
      Tensor out, Tensor in, Reduce reduce = Reduce::kSum, const ResultReader& reader = nullptr);
  Pending broadcast(Tensor tensor, int root);
  /// Part r of `in` goes to rank r; part r of `out` is from rank r. Equal parts along the first
  /// dim.
  Pending all_to_all(Tensor out, Tensor in);
  /// Sends and receives, all at once.
  Pending exchange(std::span<const P2p> transfers);
  /// Blocks until every rank has come.
  void barrier();

  /// Sees every call. One at a time; empty takes it away.
  void set_observer(Observer observer) { watch_->observer = std::move(observer); }
  /// Sees every call that began from now on, when its wait() has ended. One at a time; empty takes
  /// it away.
  void set_finish_observer(FinishObserver observer) {
    watch_->finish_observer = std::move(observer);
  }
  /// What watches `other` now and later sees this group's calls as its own, and counts its waits.
  void be_watched_with(const Communicator& other) { watch_ = other.watch_; }
  /// Seconds spent in wait() so far.
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
  /// Tells this process's pulse that a call begins, and how to tell that it is waited for.
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
  SharedMemoryBackend* shared_ = nullptr;  // of what is in host memory, if that goes so
  bool sends_pairwise_ = false;            // what is in host memory goes over Gloo
  int64_t sequence_ = 0;
  int64_t gathers_ = 0, reductions_ = 0;  // of those, in host memory
  /// What watches the group, and the lanes between its ranks.
  struct Watch {
    Observer observer;
    FinishObserver finish_observer;
    double seconds_waited = 0;
  };
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  struct ToldGroup;
  std::shared_ptr<const ToldGroup> told_;  // in this process's pulse; null: it has none
};

/// Every rank's text, on every rank, in rank order. Every rank must call.
std::vector<std::string> gather_strings(Communicator& communicator, const std::string& text);
/// Rank 0's text, on every rank.
std::string broadcast_string(Communicator& communicator, const std::string& text);
/// Agrees on whether a step that each rank took by itself went well. `failure` is empty where it
/// did. Where it failed anywhere, every rank throws an Error of `kind` that names the first rank
/// that failed and its reason, with the remedy.
void agree_on_success(
    Communicator& communicator,
    const std::string& failure,
    ErrorKind kind,
    const std::string& remedy = "");

}  // namespace lockstep::comm
