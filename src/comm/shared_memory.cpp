#include "comm/shared_memory.h"

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/format.h"

namespace lockstep::comm {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{100};  // between looks at the peers' processes

Reduce from_c10d(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduce::kSum;
    case c10d::ReduceOp::MAX:
      return Reduce::kMax;
    case c10d::ReduceOp::MIN:
      return Reduce::kMin;
    default:
      throw std::runtime_error("ranks of one machine reduce to sums, maxima and minima");
  }
}

char* start_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

}  // namespace

SharedMemoryBackend::SharedMemoryBackend(
    std::unique_ptr<SharedBoard> board, std::chrono::milliseconds timeout)
    : c10d::Backend(board->rank(), board->size()),
      board_(std::move(board)),
      timeout_(timeout),
      background_([this] { run_background(); }) {}

SharedMemoryBackend::~SharedMemoryBackend() {
  ends_ = true;
  board_->ring(rank_);
  background_.join();
  board_ = nullptr;  // from here on nobody reads the tensors of operations that have not ended
}

SharedMemoryBackend::OperationPtr SharedMemoryBackend::start(OperationPtr operation) {
  {
    const std::scoped_lock lock(list_);
    operations_.push_back(operation);
  }
  const std::unique_lock lock(progress_, std::try_to_lock);
  if (lock && operation->bytes() <= kSmallOperation) {
    go_on(0);
  } else if (lock) {
    // Offers of one rank are made in the order of its calls.
    const std::scoped_lock list(list_);
    for (const OperationPtr& begun : operations_) {
      begun->announce(*board_);
    }
  }
  if (!operation->done) {
    board_->ring(rank_);  // for the thread in the background
  }
  return operation;
}

void SharedMemoryBackend::go_on(uint64_t lost) {
  std::vector<OperationPtr> begun;
  {
    const std::scoped_lock lock(list_);
    begun.assign(operations_.begin(), operations_.end());
  }
  bool some_done = false;
  for (const OperationPtr& operation : begun) {
    bool done = false;
    try {
      operation->announce(*board_);
      done = operation->go_on(*board_);
      if (const uint64_t gone = operation->missing() & lost; !done && gone != 0) {
        throw std::runtime_error(
            fmt::format("rank {} of the group has ended", __builtin_ctzll(gone)));
      }
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
  const auto most = timeout == kNoTimeout ? timeout_ : timeout;
  const auto begin = Clock::now();
  bool look_at_processes = false;
  board_->attend(true);
  while (!operation.done) {
    const uint32_t heard = board_->bell();
    const uint64_t lost = board_->lost(look_at_processes);
    if (const std::unique_lock lock(progress_, std::try_to_lock); lock) {
      go_on(lost);
    }
    if (operation.done) {
      break;
    }
    if (Clock::now() - begin > most) {
      board_->attend(false);
      throw std::runtime_error(fmt::format(
          "no answer in {} s from rank {} of the group",
          most.count() / 1000,
          __builtin_ctzll(operation.missing())));
    }
    look_at_processes = !board_->sleep(heard, SharedBoard::Sleeper::kWaiter, kPatience);
  }
  board_->attend(false);
  if (const std::scoped_lock lock(list_); !operations_.empty()) {
    board_->ring(rank_);  // what else is under way is the background's again
  }
  if (operation.failure != nullptr) {
    std::rethrow_exception(operation.failure);
  }
}

void SharedMemoryBackend::run_background() {
  while (!ends_) {
    const uint32_t heard = board_->bell();
    if (!board_->attended()) {
      const std::scoped_lock lock(progress_);
      go_on(0);  // who waits will see who is lost
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
    throw std::runtime_error("ranks of one machine exchange equal parts alone");
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
