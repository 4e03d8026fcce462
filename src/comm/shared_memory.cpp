// Shared-memory backend: progress, waits and timeouts.
#include "comm/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/format.h"
#include "comm/moving.h"
#include "comm/shared_parts.h"

namespace lockstep::comm {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

Reduce from_c10d(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduce::kSum;
    case c10d::ReduceOp::MAX:
      return Reduce::kMax;
    case c10d::ReduceOp::MIN:
      return Reduce::kMin;
    default:
      throw std::runtime_error("shared-memory reductions support sum, maximum and minimum only");
  }
}

char* start_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

/// Boards of all groups of a world rank. The rank publishes on all boards for which rank it waits,
/// so that the peers in one group know that it waits in another.
class Waits {
 public:
  static Waits& of_process() {
    static Waits waits;
    return waits;
  }
  void add(int world_rank, const SharedBoard* board) {
    const std::scoped_lock lock(mutex_);
    boards_[world_rank].insert(board);
  }
  void remove(int world_rank, const SharedBoard* board) {
    const std::scoped_lock lock(mutex_);
    boards_[world_rank].erase(board);
  }
  void tell(int world_rank, int whom, bool gave_up) {
    const std::scoped_lock lock(mutex_);
    for (const SharedBoard* board : boards_[world_rank]) {
      board->set_wait(whom, gave_up);
    }
  }

 private:
  std::mutex mutex_;
  std::map<int, std::set<const SharedBoard*>> boards_;
};

}  // namespace

SharedMemoryBackend::SharedMemoryBackend(std::unique_ptr<SharedBoard> board, GroupOptions options)
    : c10d::Backend(board->rank(), board->size()),
      board_(std::move(board)),
      options_(std::move(options)),
      background_([this] { run_background(); }) {
  if (options_.explains_waits) {
    Waits::of_process().add(world_rank(rank_), board_.get());
  }
}

SharedMemoryBackend::~SharedMemoryBackend() {
  Waits::of_process().remove(world_rank(rank_), board_.get());
  ends_ = true;
  board_->ring(rank_);
  background_.join();
  board_ = nullptr;  // after this, no peer reads the tensors of unfinished operations
}

SharedMemoryBackend::OperationPtr SharedMemoryBackend::start(OperationPtr operation) {
  {
    const std::scoped_lock lock(list_);
    operations_.push_back(operation);
  }
  if (const std::unique_lock progress(progress_, std::try_to_lock); progress) {
    if (operation->bytes() <= kSmallOperation) {
      go_on(0);
    } else {
      // A rank must post its offers in the order of its calls.
      const std::scoped_lock list(list_);
      board_->begin_offers();
      for (const OperationPtr& begun : operations_) {
        begun->announce(*board_);
      }
    }
  }
  if (!operation->done) {
    board_->ring(rank_);  // wakes the background thread
  }
  return operation;
}

bool SharedMemoryBackend::Progress::try_lock() {
  if (mutex_.try_lock()) {
    return true;
  }
  // One of the two exchanges sees the result of the other: either unlock() rings the bell, or this
  // thread finds the mutex free.
  turned_away_.exchange(true);
  return mutex_.try_lock();
}

void SharedMemoryBackend::Progress::unlock() {
  mutex_.unlock();
  if (turned_away_.exchange(false)) {
    board_.ring(board_.rank());
  }
}

void SharedMemoryBackend::go_on(uint64_t lost) {
  std::vector<OperationPtr> begun;
  {
    const std::scoped_lock lock(list_);
    begun.assign(operations_.begin(), operations_.end());
  }
  board_->begin_offers();
  bool some_done = false;
  std::vector<SharedOperation::Line> held_up;  // lines with an unfinished operation
  for (const OperationPtr& operation : begun) {
    const auto line = operation->line();
    if (line && std::find(held_up.begin(), held_up.end(), *line) != held_up.end()) {
      continue;
    }
    bool done = false;
    try {
      operation->announce(*board_);
      const double began = seconds_now();
      done = operation->go_on(*board_);
      add_seconds_moving(seconds_now() - began);
      if (line && !done) {
        held_up.push_back(*line);
      }
      if (const uint64_t gone = operation->missing() & lost; !done && gone != 0) {
        throw PeerLeft(__builtin_ctzll(gone));
      }
    } catch (const PeerLeft& left) {
      operation->failure = std::make_exception_ptr(std::runtime_error(why_gone(left.peer)));
      failed_.push_back(operation);
      done = true;
    } catch (...) {
      operation->failure = std::current_exception();
      failed_.push_back(operation);
      done = true;
    }
    if (done) {
      const std::scoped_lock lock(list_);
      operations_.remove(operation);
      operation->done = true;
      some_done = true;
    }
  }
  if (some_done && board_->attended()) {
    board_->ring(rank_);
  }
}

void SharedMemoryBackend::wait_for(SharedOperation& operation, std::chrono::milliseconds timeout) {
  const auto most = timeout == kNoTimeout ? options_.timeout : timeout;
  const auto begin = Clock::now();
  bool look_at_processes = false;
  int root = SharedBoard::kNobody;  // published after a long wait
  board_->attend(true);
  while (!operation.done) {
    const uint32_t heard = board_->bell();
    const uint64_t lost = board_->lost(look_at_processes);
    if (const std::unique_lock progress(progress_, std::try_to_lock); progress) {
      go_on(lost);
      if (look_at_processes && !operation.done) {
        root = root_of(operation.awaited());
        tell_wait(root, /*gave_up=*/false);
      }
    }
    if (operation.done) {
      break;
    }
    const auto left =
        most - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    if (left.count() < 0) {
      board_->attend(false);
      give_up(operation, most);
    }
    look_at_processes = !board_->sleep(
        heard,
        SharedBoard::Sleeper::kWaiter,
        std::min(options_.patience, left + std::chrono::milliseconds(1)));
  }
  board_->attend(false);
  if (root != SharedBoard::kNobody && operation.failure == nullptr) {
    tell_wait(SharedBoard::kNobody, /*gave_up=*/false);
  }
  if (const std::scoped_lock lock(list_); !operations_.empty()) {
    board_->ring(rank_);  // so that the background thread continues with the other operations
  }
  if (operation.failure != nullptr) {
    std::rethrow_exception(operation.failure);
  }
}

int SharedMemoryBackend::world_rank(int rank) const {
  return options_.world_ranks.empty() ? rank : options_.world_ranks.at(static_cast<size_t>(rank));
}

int SharedMemoryBackend::root_of(uint64_t awaited) const {
  int root = SharedBoard::kNobody;
  for (int peer = 0; peer < size_; ++peer) {
    if ((awaited & rank_bit(peer)) == 0) {
      continue;
    }
    const int waits_for = board_->waits_for(peer);
    if (waits_for == SharedBoard::kNobody || waits_for == world_rank(rank_)) {
      return world_rank(peer);  // the peer waits for no rank, or the ranks wait for each other in a
                                // cycle
    }
    root = root == SharedBoard::kNobody ? waits_for : root;
  }
  return root;
}

std::string SharedMemoryBackend::names_of(uint64_t ranks) const {
  std::vector<int> world;
  for (int peer = 0; peer < size_; ++peer) {
    if ((ranks & rank_bit(peer)) != 0) {
      world.push_back(world_rank(peer));
    }
  }
  return fmt::format("{} {}", world.size() == 1 ? "rank" : "ranks", fmt::join(world, ", "));
}

void SharedMemoryBackend::tell_wait(int whom, bool gave_up) {
  if (options_.explains_waits) {
    Waits::of_process().tell(world_rank(rank_), whom, gave_up);
  } else {
    board_->set_wait(whom, gave_up);
  }
}

std::string SharedMemoryBackend::why_gone(int rank) {
  const int waited_for = board_->waits_for(rank);
  if (!board_->gave_up(rank) || waited_for == world_rank(rank_)) {
    return fmt::format("rank {} has ended", world_rank(rank));
  }
  tell_wait(waited_for, /*gave_up=*/true);  // so that peers that see this rank leave report the
                                            // same cause
  return fmt::format("rank {} ended: it had no answer from rank {}", world_rank(rank), waited_for);
}

void SharedMemoryBackend::give_up(SharedOperation& operation, std::chrono::milliseconds waited) {
  uint64_t awaited = 0;
  {
    const std::scoped_lock lock(progress_);
    awaited = operation.awaited();
  }
  if (awaited == 0) {
    throw std::runtime_error("the operation completed just after its timeout");
  }
  const int root = root_of(awaited);
  tell_wait(root, /*gave_up=*/true);
  // Ranks that are waiting themselves are not the cause.
  uint64_t standing = 0;
  bool root_is_awaited = false;
  for (int peer = 0; peer < size_; ++peer) {
    if ((awaited & rank_bit(peer)) != 0) {
      standing |= board_->waits_for(peer) == SharedBoard::kNobody ? rank_bit(peer) : 0;
      root_is_awaited = root_is_awaited || world_rank(peer) == root;
    }
  }
  std::string text = fmt::format(
      "no answer in {:.3g} s from {}",
      static_cast<double>(waited.count()) / 1000,
      names_of(standing != 0 ? standing : awaited));
  if (standing == 0 && !root_is_awaited) {
    text += fmt::format(", which waits for rank {}", root);
  }
  throw std::runtime_error(text);
}

void SharedMemoryBackend::run_background() {
  while (!ends_) {
    const uint32_t heard = board_->bell();
    if (!board_->attended()) {
      const std::scoped_lock progress(progress_);
      go_on(0);  // only waiting threads check for lost ranks
    }
    board_->sleep(heard, SharedBoard::Sleeper::kBackground, std::chrono::seconds(1));
  }
}

WorkPtr SharedMemoryBackend::allreduce(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  return all_reduce(tensors.at(0), from_c10d(options.reduceOp), nullptr);
}

WorkPtr SharedMemoryBackend::all_reduce(
    const at::Tensor& tensor, Reduce reduce, const ResultReader& reader) {
  return start(shared_all_reduce(group(), tensor, reduce, others_++, reader));
}

WorkPtr SharedMemoryBackend::sum_by_all(const at::Tensor& out, const at::Tensor& in) {
  return start(shared_sum_by_all(group(), out, in, others_++));
}

WorkPtr SharedMemoryBackend::_allgather_base(
    at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& /*options*/) {
  const uint64_t part = in.nbytes();
  char* mine = start_of(out) + static_cast<uint64_t>(rank_) * part;
  if (part > 0 && mine != in.data_ptr()) {
    std::memcpy(mine, in.data_ptr(), part);
  }
  return start(shared_all_gather(group(), out, in, gathers_++));
}

WorkPtr SharedMemoryBackend::_reduce_scatter_base(
    at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) {
  return reduce_scatter(out, in, from_c10d(options.reduceOp), nullptr);
}

WorkPtr SharedMemoryBackend::reduce_scatter(
    const at::Tensor& out, const at::Tensor& in, Reduce reduce, const ResultReader& reader) {
  return start(shared_reduce_scatter(group(), out, in, reduce, reductions_++, reader));
}

WorkPtr SharedMemoryBackend::broadcast(
    std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  return start(
      shared_broadcast(group(), tensors.at(0), static_cast<int>(options.rootRank), others_++));
}

WorkPtr SharedMemoryBackend::alltoall_base(
    at::Tensor& out,
    at::Tensor& in,
    std::vector<int64_t>& out_sizes,
    std::vector<int64_t>& in_sizes,
    const c10d::AllToAllOptions& /*options*/) {
  if (!out_sizes.empty() || !in_sizes.empty() || in.nbytes() % static_cast<size_t>(size_) != 0) {
    throw std::runtime_error("shared-memory all-to-all requires equal sizes");
  }
  const uint64_t part = in.nbytes() / static_cast<uint64_t>(size_);
  const uint64_t mine = static_cast<uint64_t>(rank_) * part;
  std::memcpy(start_of(out) + mine, start_of(in) + mine, part);
  return start(shared_all_to_all(group(), out, in, others_++));
}

WorkPtr SharedMemoryBackend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  return start(shared_send(group(), tensors.at(0), to, tag));
}

WorkPtr SharedMemoryBackend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  return start(shared_receive(group(), tensors.at(0), from, tag));
}

}  // namespace lockstep::comm
