// Collectives with timeouts, error messages, observers and rank status.
#include "comm/communicator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/rank_status.h"
#include "comm/heartbeat.h"
#include "comm/pairwise.h"
#include "comm/shared_memory.h"

namespace lockstep::comm {
namespace {

c10d::ReduceOp to_c10d(Reduce reduce) {
  switch (reduce) {
    case Reduce::kSum:
      return c10d::ReduceOp::SUM;
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
    case Reduce::kMin:
      return c10d::ReduceOp::MIN;
  }
  return c10d::ReduceOp::SUM;
}

// Collectives over one tensor. Newer versions of libtorch rename them and deprecate the old names,
// so each of these calls the name that the library has.
template <class Group>
auto gather_single(Group& group, Tensor& out, Tensor& in) {
  if constexpr (requires { group.all_gather_single(out, in); }) {
    return group.all_gather_single(out, in);
  } else {
    return group._allgather_base(out, in);
  }
}

template <class Group>
auto reduce_scatter_single(
    Group& group, Tensor& out, Tensor& in, const c10d::ReduceScatterOptions& options) {
  if constexpr (requires { group.reduce_scatter_single(out, in, options); }) {
    return group.reduce_scatter_single(out, in, options);
  } else {
    return group._reduce_scatter_base(out, in, options);
  }
}

/// Exchanges slices of equal size.
template <class Group>
auto all_to_all_single(Group& group, Tensor& out, Tensor& in) {
  std::vector<int64_t> equal;
  if constexpr (requires { group.all_to_all_single(out, in, equal, equal); }) {
    return group.all_to_all_single(out, in, equal, equal);
  } else {
    return group.alltoall_base(out, in, equal, equal);
  }
}

/// First tags of the messages of pairwise collectives. They differ from the tags of callers, and
/// between kinds of collectives: all ranks start gathers in the same order and reductions in the
/// same order, but not always in the same order relative to each other.
constexpr int kTagsOfAKind = 1 << 28;
int tag_of(int kind, int64_t count) {
  return kind * kTagsOfAKind + static_cast<int>(count % kTagsOfAKind);
}

Error peer_lost(const std::string& call, const std::exception& error) {
  const std::string text = error.what();
  return Error(
      ErrorKind::kPeerLost,
      fmt::format("{} failed: {}", call, text.substr(0, text.find('\n'))),
      "another rank ended or did not answer; find the first rank that failed");
}

/// Throws Error (peer lost) if the heartbeat found a lost rank, even if the backend did not detect
/// the loss.
void throw_if_lost(const std::function<std::string()>& describe) {
  if (const std::string who = lost_rank(); !who.empty()) {
    throw peer_lost(describe(), std::runtime_error(who));
  }
}

/// Records a pending wait in the rank status until it ends or, on a GPU, is handed to the device.
class ToldWait {
 public:
  ToldWait(int wait, bool on_device) : wait_(wait), on_device_(on_device) {}
  ~ToldWait() {
    if (wait_ >= 0 && on_device_) {
      rank_status()->leave_wait(wait_);
    } else if (wait_ >= 0) {
      rank_status()->end_wait(wait_);
    }
  }
  ToldWait(const ToldWait&) = delete;
  ToldWait& operator=(const ToldWait&) = delete;

 private:
  int wait_;
  bool on_device_;
};

/// Returns the distinct peers of the transfers.
std::vector<int> other_ends(std::span<const P2p> transfers) {
  std::vector<int> peers;
  for (const P2p& transfer : transfers) {
    if (std::find(peers.begin(), peers.end(), transfer.peer) == peers.end()) {
      peers.push_back(transfer.peer);
    }
  }
  return peers;
}

CallKind kind_of(std::string_view operation) {
  return operation == "all_gather"       ? CallKind::kGather
         : operation == "reduce_scatter" ? CallKind::kReduction
         : operation == "exchange"       ? CallKind::kMessages
                                         : CallKind::kOther;
}

}  // namespace

/// Entry of the group in the rank status. It is removed with the last reference.
struct Communicator::ToldGroup {
  ToldGroup(const std::string& name, std::vector<int> all)
      : ranks(std::move(all)),
        number(rank_status()->add_group(name, ranks)) {}
  ~ToldGroup() { rank_status()->remove_group(number); }
  ToldGroup(const ToldGroup&) = delete;
  ToldGroup& operator=(const ToldGroup&) = delete;

  const std::vector<int> ranks;  // world ranks of the members
  const int number;
};

void Pending::wait() {
  const auto work = std::exchange(work_, nullptr);
  if (work == nullptr) {
    return;
  }
  const double start = seconds_now();
  try {
    const ToldWait told(tell_wait_ ? std::exchange(tell_wait_, nullptr)(name_) : -1, on_device_);
    work->wait();
  } catch (const std::exception& error) {
    throw peer_lost(describe_(), error);
  }
  throw_if_lost(describe_);
  const double end = seconds_now();
  waited_(end - start);
  if (finished_) {
    std::exchange(finished_, nullptr)(name_, start, end);
  }
  if (finish_) {
    std::exchange(finish_, nullptr)();
  }
}

Communicator::Communicator(ProcessGroup group, GroupOptions options, std::string name)
    : group_(std::move(group)),
      name_(std::move(name)),
      rank_(group_->getRank()),
      size_(group_->getSize()),
      options_(std::move(options)) {
  if (!options_.only_on_device || !options_.device.is_cuda()) {
    shared_ = dynamic_cast<SharedMemoryBackend*>(group_->getBackend(c10::kCPU).get());
    sends_pairwise_ = shared_ == nullptr && !is_ordered(group_, c10::kCPU);
  }
  if (rank_status() != nullptr && size_ > 1) {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      ranks.push_back(world_rank(rank));
    }
    told_ = std::make_shared<const ToldGroup>(name_, std::move(ranks));
  }
}

Communicator Communicator::alone() {
  return {};
}

Pending Communicator::start(
    std::string_view operation,
    const Tensor& shape_of,
    double ring_factor,
    const std::function<c10::intrusive_ptr<c10d::Work>()>& call,
    std::span<const P2p> transfers) {
  Pending pending;
  if (size_ == 1) {
    return pending;
  }
  const int64_t sequence = sequence_++;
  const auto bytes = static_cast<int64_t>(shape_of.nbytes());
  const int64_t sent = std::llround(ring_factor * static_cast<double>(bytes) * (size_ - 1) / size_);
  if (watch_->observer) {
    watch_->observer({operation, sequence, bytes, sent});
  }
  if (watch_->finish_observer) {
    pending.finished_ = [observer = watch_->finish_observer,
                         operation = std::string(operation),
                         group = name_,
                         bytes,
                         sent,
                         began = seconds_now()](
                            const std::string& name, double waited_from, double ended) {
      observer({operation, group, name, bytes, sent, began, waited_from, ended});
    };
  }
  pending.waited_ = [watch = watch_](double seconds) { watch->seconds_waited += seconds; };
  pending.describe_ =
      [name = name_,
       rank = world_rank(rank_),
       ranks = options_.world_ranks.empty()
                   ? fmt::format("of {}", size_)
                   : fmt::format("(of ranks {})", fmt::join(options_.world_ranks, ", ")),
       operation = std::string(operation),
       sequence,
       shape = shape_of.sizes().vec()] {
        return fmt::format(
            "rank {} {}: {} number {} of group {}, shape [{}],",
            rank,
            ranks,
            operation,
            sequence,
            name,
            fmt::join(shape, ", "));
      };
  throw_if_lost(pending.describe_);
  pending.on_device_ = !shape_of.device().is_cpu();
  set_rank_phase(pending, operation, sequence, shape_of, transfers);
  try {
    pending.work_ = call();
  } catch (const std::exception& error) {
    throw peer_lost(pending.describe_(), error);
  }
  return pending;
}

void Communicator::set_rank_phase(
    Pending& pending,
    std::string_view operation,
    int64_t sequence,
    const Tensor& shape_of,
    std::span<const P2p> transfers) {
  if (told_ == nullptr) {
    return;
  }
  const CallKind kind = kind_of(operation);
  pending.tell_wait_ = [told = told_,
                        operation = std::string(operation),
                        group = name_,
                        sequence,
                        kind,
                        index = rank_status()->begin_call(told_->number, kind),
                        shape = shape_of.sizes().vec(),
                        peers = other_ends(transfers)](const std::string& what) {
    PendingCall wait{operation, group, what, sequence, shape, seconds_now(), {}, kind, index};
    if (kind == CallKind::kMessages) {
      for (const int peer : peers) {
        wait.ranks.push_back(told->ranks.at(static_cast<size_t>(peer)));
      }
    } else {
      wait.ranks = told->ranks;
    }
    return rank_status()->begin_wait(wait);
  };
}

Pending Communicator::all_reduce(Tensor tensor, Reduce reduce, const ResultReader& reader) {
  const auto begin_of = [n = tensor.numel(), size = size_](int rank) { return n * rank / size; };
  const auto read = [reader, begin = begin_of(rank_), end = begin_of(rank_ + 1)] {
    reader(begin, end);
  };
  std::function<void()> finish;
  Pending pending = start("all_reduce", tensor, 2.0, [&]() -> c10::intrusive_ptr<c10d::Work> {
    if (reader && tensor.is_cpu() && shared_ != nullptr) {
      return shared_->all_reduce(tensor, reduce, reader);
    }
    if (reader) {
      finish = read;
    }
    std::vector<Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(reduce);
    return group_->allreduce(tensors, options);
  });
  pending.finish_ = std::move(finish);
  if (reader && size_ == 1) {
    read();
  }
  return pending;
}

Pending Communicator::sum_into(Tensor out, Tensor in) {
  // With two ranks, this reads the same number of bytes as an all-reduce, in one step instead of
  // two.
  if (size_ == 2 && in.is_cpu() && shared_ != nullptr) {
    return start("all_reduce", in, 2.0, [&] { return shared_->sum_by_all(out, in); });
  }
  out.copy_(in);
  return all_reduce(std::move(out));
}

Pending Communicator::all_gather(Tensor out, Tensor in) {
  if (size_ == 1 && out.data_ptr() != in.data_ptr()) {
    out.view({-1}).copy_(in.view({-1}));
  }
  return start("all_gather", out, 1.0, [&] {
    Tensor flat_out = out.view({-1}), flat_in = in.view({-1});
    if (out.is_cpu() && sends_pairwise_) {
      return start_pairwise_gather(*group_, flat_out, flat_in, tag_of(1, gathers_++));
    }
    return gather_single(*group_, flat_out, flat_in);
  });
}

Pending Communicator::reduce_scatter(
    Tensor out, Tensor in, Reduce reduce, const ResultReader& reader) {
  if (size_ == 1 && out.data_ptr() != in.data_ptr()) {
    out.view({-1}).copy_(in.view({-1}));
  }
  const auto read = [reader, end = out.numel()] { reader(0, end); };
  std::function<void()> finish;
  Pending pending = start("reduce_scatter", in, 1.0, [&]() -> c10::intrusive_ptr<c10d::Work> {
    Tensor flat_out = out.view({-1}), flat_in = in.view({-1});
    if (in.is_cpu() && sends_pairwise_ && can_reduce(in.scalar_type())) {
      PairwiseReduction reduction = start_pairwise_reduce_scatter(
          *group_, flat_out, flat_in, reduce, tag_of(2, reductions_++), reader);
      finish = std::move(reduction.finish);
      return reduction.work;
    }
    if (reader && in.is_cpu() && shared_ != nullptr) {
      return shared_->reduce_scatter(flat_out, flat_in, reduce, reader);
    }
    if (reader) {
      finish = read;
    }
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(reduce);
    return reduce_scatter_single(*group_, flat_out, flat_in, options);
  });
  pending.finish_ = std::move(finish);
  if (reader && size_ == 1) {
    read();
  }
  return pending;
}

Pending Communicator::broadcast(Tensor tensor, int root) {
  return start("broadcast", tensor, 1.0, [&] {
    std::vector<Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return group_->broadcast(tensors, options);
  });
}

Pending Communicator::all_to_all(Tensor out, Tensor in) {
  if (size_ == 1 && out.data_ptr() != in.data_ptr()) {
    out.view({-1}).copy_(in.view({-1}));
  }
  return start("all_to_all", in, 1.0, [&] { return all_to_all_single(*group_, out, in); });
}

Pending Communicator::exchange(std::span<const P2p> transfers) {
  if (transfers.empty()) {
    return {};
  }
  // Number of bytes sent, divided by a ring's share of the first tensor, which is the factor that
  // start() expects.
  double sent = 0;
  for (const P2p& transfer : transfers) {
    sent += transfer.direction == P2p::Direction::kSend
                ? static_cast<double>(transfer.tensor.nbytes())
                : 0.0;
  }
  const Tensor& first = transfers.front().tensor;
  const double share = static_cast<double>(first.nbytes()) * (size_ - 1) / size_;
  return start(
      "exchange",
      first,
      share > 0 ? sent / share : 0,
      [&] { return start_transfers(*group_, transfers); },
      transfers);
}

void Communicator::barrier() {
  // An all-reduce, because c10d's barrier may use an idle device.
  Tensor one = at::zeros({1}, at::kInt);
  all_reduce(one).wait();
}

std::vector<std::string> gather_strings(Communicator& communicator, const std::string& text) {
  if (communicator.size() == 1) {
    return {text};
  }
  const int64_t ranks = communicator.size();
  Tensor lengths = at::empty({ranks}, at::kLong);
  communicator.all_gather(lengths, at::full({1}, static_cast<int64_t>(text.size()), at::kLong))
      .wait();
  const int64_t longest = std::max<int64_t>(
      1, *std::max_element(lengths.data_ptr<int64_t>(), lengths.data_ptr<int64_t>() + ranks));
  Tensor mine = at::zeros({longest}, at::kByte), all = at::empty({ranks * longest}, at::kByte);
  std::copy(text.begin(), text.end(), mine.data_ptr<uint8_t>());
  communicator.all_gather(all, mine).wait();
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto* begin = reinterpret_cast<const char*>(all.data_ptr<uint8_t>()) + rank * longest;
    texts.emplace_back(begin, static_cast<size_t>(lengths.data_ptr<int64_t>()[rank]));
  }
  return texts;
}

std::string broadcast_string(Communicator& communicator, const std::string& text) {
  return gather_strings(communicator, communicator.rank() == 0 ? text : "").front();
}

void agree_on_success(
    Communicator& communicator,
    const std::string& failure,
    ErrorKind kind,
    const std::string& remedy) {
  const auto failures = gather_strings(communicator, failure);
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank].empty()) {
      throw Error(
          kind,
          failures.size() == 1 ? failures[rank] : fmt::format("rank {}: {}", rank, failures[rank]),
          remedy);
    }
  }
}

}  // namespace lockstep::comm
