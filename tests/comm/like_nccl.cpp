// c10d backend in host memory that enforces NCCL's ordering rules.
#include "comm/like_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/format.h"
#include "comm/process_group.h"

namespace lockstep::comm {
namespace like_nccl {

using at::Tensor;
using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A send, a receive, or one rank's contribution to a collective.
struct Part {
  enum class Kind { kSend, kReceive, kCollective } kind = Kind::kCollective;
  int peer = -1;         // of a send or receive
  std::string what;      // description for errors; equal on all ranks of a collective
  Tensor sent, given;    // copy of the caller's tensor, and the tensor
  Tensor into, arrived;  // destination, and the received data
  std::function<std::vector<Tensor>(const std::vector<Tensor>& sent)>
      make;  // computes the result of a collective for each rank
  bool done = false;
};
/// The work of one kernel.
struct Launch {
  std::vector<std::shared_ptr<Part>> parts;
  bool done() const {
    return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part->done; });
  }
};
using LaunchPtr = std::shared_ptr<Launch>;

struct Group;
/// A rank's stream of a communicator; runs its launches sequentially.
struct Stream {
  std::deque<LaunchPtr> queue;  // the first launch has started
  std::thread::id host;
  bool connected = false, ended = false;
};
struct Channel {  // messages that have started, from one rank to another
  std::deque<std::shared_ptr<Part>> sends, receives;
  int64_t buffered = 0;
};
struct Group {
  std::vector<int> world_ranks;
  std::vector<Stream> streams;
  std::map<std::pair<int, int>, Channel> channels;
  std::map<int, std::shared_ptr<Part>> collective;              // parts that have started, by rank
  std::map<std::pair<int, int>, std::shared_ptr<Group>> pairs;  // created on first use
  int64_t fifo_bytes = 0;
  std::string failure;

  Group(std::vector<int> ranks, int64_t fifo)
      : world_ranks(std::move(ranks)),
        streams(world_ranks.size()),
        fifo_bytes(fifo) {}
  std::string text() const { return fmt::format("group [{}]", fmt::join(world_ranks, ", ")); }
  bool connected() const {
    return std::all_of(streams.begin(), streams.end(), [](const Stream& s) { return s.connected; });
  }
};
using GroupPtr = std::shared_ptr<Group>;

/// The wait of a blocked host thread: for a launch or, if null, for the group's other ranks.
struct Blocked {
  Group* group;
  int rank;
  const Launch* launch;
};

/// State of all ranks of the process, protected by one mutex.
class Machine {
 public:
  static Machine& the() {
    static Machine machine;
    return machine;
  }

  GroupPtr make_group(const std::vector<int>& world_ranks, int64_t fifo_bytes) {
    auto group = std::make_shared<Group>(world_ranks, fifo_bytes);
    std::erase_if(groups_, [](const auto& other) { return other.expired(); });
    groups_.push_back(group);
    return group;
  }
  GroupPtr pair_of(Group& group, int a, int b) {
    const std::scoped_lock lock(mutex);
    GroupPtr& pair = group.pairs[std::minmax(a, b)];
    if (pair == nullptr) {
      const auto [low, high] = std::minmax(a, b);
      pair = make_group(
          {group.world_ranks[static_cast<size_t>(low)],
           group.world_ranks[static_cast<size_t>(high)]},
          group.fifo_bytes);
      for (const auto& [at, of] : {std::pair(0, low), std::pair(1, high)}) {
        pair->streams[static_cast<size_t>(at)].host = group.streams[static_cast<size_t>(of)].host;
      }
    }
    return pair;
  }

  /// Blocks until all ranks of the group have connected.
  void connect(Group& group, int rank, milliseconds timeout) {
    std::unique_lock lock(mutex);
    group.streams[static_cast<size_t>(rank)].connected = true;
    changed_.notify_all();
    block(lock, {&group, rank, nullptr}, timeout, [&] { return group.connected(); });
  }
  void enqueue(Group& group, int rank, LaunchPtr launch) {
    const std::scoped_lock lock(mutex);
    if (!group.failure.empty()) {
      throw std::runtime_error(group.failure);
    }
    Stream& stream = group.streams[static_cast<size_t>(rank)];
    stream.queue.push_back(std::move(launch));
    if (stream.queue.size() == 1) {
      start_first(group, rank);
    }
  }
  void wait(Group& group, int rank, const Launch& launch, milliseconds timeout) {
    std::unique_lock lock(mutex);
    block(lock, {&group, rank, &launch}, timeout, [&] { return launch.done(); });
  }
  void end(Group& group, int rank) {
    const std::scoped_lock lock(mutex);
    group.streams[static_cast<size_t>(rank)].ended = true;
    for (const auto& [key, pair] : group.pairs) {
      for (const auto& [at, of] : {std::pair(0, key.first), std::pair(1, key.second)}) {
        pair->streams[static_cast<size_t>(at)].ended |= of == rank;
      }
    }
    for (const auto& [host, blocked] : blocked_) {
      look_for_deadlock(host);
    }
  }

  std::mutex mutex;
  std::map<int64_t, GroupPtr> rendezvous;  // groups that ranks are joining

 private:
  /// Node of the wait graph: a host thread, or a rank's stream of a group.
  struct Node {
    std::thread::id host;
    Group* group = nullptr;
    int rank = 0;
    auto key() const { return std::tuple(host, group, group == nullptr ? 0 : rank); }
  };

  template <class Done>
  void block(
      std::unique_lock<std::mutex>& lock, const Blocked& on, milliseconds timeout, Done done) {
    const auto self = std::this_thread::get_id();
    if (!done() && on.group->failure.empty()) {
      blocked_.insert_or_assign(self, on);
      look_for_deadlock(self);
      changed_.wait_for(lock, timeout, [&] { return done() || !on.group->failure.empty(); });
      blocked_.erase(self);
    }
    if (!done()) {
      throw std::runtime_error(on.group->failure.empty() ? "timeout" : on.group->failure);
    }
  }

  void fail(const std::string& text) {
    for (const auto& weak : groups_) {
      if (const GroupPtr group = weak.lock()) {
        group->failure = text;
      }
    }
    changed_.notify_all();
  }

  void start_first(Group& group, int rank) {
    std::vector<int> to_start{rank};
    while (!to_start.empty()) {
      const int next = to_start.back();
      to_start.pop_back();
      const LaunchPtr launch = group.streams[static_cast<size_t>(next)].queue.front();
      for (const auto& part : launch->parts) {
        start(group, next, part);
      }
      for (int r = 0; r < static_cast<int>(group.streams.size()); ++r) {
        auto& queue = group.streams[static_cast<size_t>(r)].queue;
        if (!queue.empty() && queue.front()->done()) {
          queue.pop_front();
          if (!queue.empty()) {
            to_start.push_back(r);
          }
        }
      }
    }
    changed_.notify_all();
  }

  void start(Group& group, int rank, const std::shared_ptr<Part>& part) {
    if (part->kind == Part::Kind::kCollective) {
      group.collective[rank] = part;
      if (group.collective.size() == group.streams.size()) {
        run_collective(group);
      }
      return;
    }
    const bool sends = part->kind == Part::Kind::kSend;
    Channel& channel =
        group.channels[sends ? std::pair(rank, part->peer) : std::pair(part->peer, rank)];
    (sends ? channel.sends : channel.receives).push_back(part);
    const auto bytes = static_cast<int64_t>(part->sent.defined() ? part->sent.nbytes() : 0);
    if (sends && channel.buffered + bytes <= group.fifo_bytes) {
      channel.buffered += bytes;
      part->done = true;
    }
    while (!channel.sends.empty() && !channel.receives.empty()) {
      Part &from = *channel.sends.front(), &to = *channel.receives.front();
      if (from.sent.scalar_type() != to.into.scalar_type() ||
          from.sent.numel() != to.into.numel()) {
        fail(fmt::format("{}: \"{}\" meets \"{}\"", group.text(), from.what, to.what));
      } else {
        to.arrived = from.sent;
      }
      if (from.done) {
        channel.buffered -= static_cast<int64_t>(from.sent.nbytes());
      }
      from.done = to.done = true;
      channel.sends.pop_front();
      channel.receives.pop_front();
    }
  }

  void run_collective(Group& group) {
    std::vector<Tensor> sent;
    const Part& first = *group.collective.at(0);
    for (const auto& [rank, part] : group.collective) {
      sent.push_back(part->sent);
      if (part->what != first.what) {
        fail(fmt::format(
            "{}: rank {} calls {}, and rank {} {}",
            group.text(),
            group.world_ranks[0],
            first.what,
            group.world_ranks[static_cast<size_t>(rank)],
            part->what));
        return;
      }
    }
    const std::vector<Tensor> made = first.make(sent);
    for (const auto& [rank, part] : group.collective) {
      part->arrived = made[static_cast<size_t>(rank)];
      part->done = true;
    }
    group.collective.clear();
  }

  /// Returns the nodes that must progress before this one can.
  std::vector<Node> needs(const Node& node) const {
    std::vector<Node> result;
    const auto need_rank = [&](Group& group, int rank) {
      const Stream& stream = group.streams[static_cast<size_t>(rank)];
      result.push_back(stream.queue.empty() ? Node{stream.host} : Node{{}, &group, rank});
    };
    if (node.group == nullptr) {
      const auto found = blocked_.find(node.host);
      if (found == blocked_.end()) {
        return {};
      }
      const auto& [group, rank, launch] = found->second;
      if (launch != nullptr) {
        if (!launch->done()) {  // otherwise it is about to wake
          result.push_back({{}, group, rank});
        }
        return result;
      }
      for (const Stream& stream : group->streams) {
        if (!stream.connected) {
          result.push_back({stream.host});
        }
      }
      return result;
    }
    for (const auto& part :
         node.group->streams[static_cast<size_t>(node.rank)].queue.front()->parts) {
      if (part->done) {
        continue;
      }
      if (part->kind != Part::Kind::kCollective) {
        need_rank(*node.group, part->peer);
        continue;
      }
      for (int r = 0; r < static_cast<int>(node.group->streams.size()); ++r) {
        if (!node.group->collective.contains(r)) {
          need_rank(*node.group, r);
        }
      }
    }
    return result;
  }

  std::string text_of(const Node& node) const {
    if (node.group != nullptr) {
      std::vector<std::string> parts;
      for (const auto& part :
           node.group->streams[static_cast<size_t>(node.rank)].queue.front()->parts) {
        if (!part->done) {
          parts.push_back(part->what);
        }
      }
      return fmt::format("{}: {}", node.group->text(), fmt::join(parts, " and "));
    }
    const auto found = blocked_.find(node.host);
    if (found == blocked_.end()) {
      return "a rank has ended";
    }
    const auto& [group, rank, launch] = found->second;
    std::string waits_for = "for the others to connect";
    if (launch != nullptr) {
      waits_for = "for " + launch->parts.front()->what;
    }
    return fmt::format(
        "rank {} waits in {} {}",
        group->world_ranks[static_cast<size_t>(rank)],
        group->text(),
        waits_for);
  }

  bool has_ended(const Node& node) const {
    return node.group == nullptr && !blocked_.contains(node.host) &&
           std::any_of(groups_.begin(), groups_.end(), [&](const auto& weak) {
             const GroupPtr group = weak.lock();
             return group != nullptr &&
                    std::any_of(group->streams.begin(), group->streams.end(), [&](const Stream& s) {
                      return s.host == node.host && s.ended;
                    });
           });
  }

  void look_for_deadlock(std::thread::id host) {
    std::vector<Node> path;
    std::set<decltype(Node{}.key())> seen;
    const std::function<bool(const Node&)> leads_back = [&](const Node& node) {
      const auto same = [&](const Node& other) { return other.key() == node.key(); };
      const auto begin = std::find_if(path.begin(), path.end(), same);
      if (begin != path.end() || has_ended(node)) {
        std::vector<std::string> steps;
        for (auto step = begin == path.end() ? path.begin() : begin; step != path.end(); ++step) {
          steps.push_back(text_of(*step));
        }
        fail(fmt::format(
            "{}: {}",
            begin != path.end() ? "deadlock" : "a rank has ended",
            fmt::join(steps, "; ")));
        return true;
      }
      if (!seen.insert(node.key()).second) {
        return false;
      }
      path.push_back(node);
      const std::vector<Node> next = needs(node);
      const bool found = std::any_of(next.begin(), next.end(), leads_back);
      path.pop_back();
      return found;
    };
    leads_back({host});
  }

  std::condition_variable changed_;
  std::vector<std::weak_ptr<Group>> groups_;
  std::map<std::thread::id, Blocked> blocked_;
};

bool overlap(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.storage().data() == b.storage().data();
}

/// Fills a result with NaN, so that code that reads it before wait() computes wrong values.
void poison(const Tensor& tensor) {
  if (tensor.is_floating_point()) {
    tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  } else if (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt) {
    tensor.fill_(std::numeric_limits<int32_t>::min());
  }
}

class LikeNcclWork final : public c10d::Work {
 public:
  LikeNcclWork(GroupPtr group, int rank, LaunchPtr launch, milliseconds timeout)
      : group_(std::move(group)),
        rank_(rank),
        launch_(std::move(launch)),
        timeout_(timeout) {}

  bool wait(milliseconds timeout) override {
    Machine::the().wait(*group_, rank_, *launch_, timeout.count() > 0 ? timeout : timeout_);
    for (const auto& part : launch_->parts) {
      const bool kept =
          overlap(part->given, part->into) || !part->given.defined() || part->given.nbytes() == 0 ||
          std::memcmp(part->given.data_ptr(), part->sent.data_ptr(), part->given.nbytes()) == 0;
      if (!kept) {
        throw std::runtime_error(part->what + ": what was sent has changed before wait()");
      }
      if (part->into.defined()) {
        const at::NoGradGuard no_grad;
        part->into.view({-1}).copy_(part->arrived.view({-1}));
      }
    }
    return true;
  }

 private:
  GroupPtr group_;
  int rank_;
  LaunchPtr launch_;
  milliseconds timeout_;
};

class LikeNcclBackend final : public c10d::Backend {
 public:
  LikeNcclBackend(
      const Store& store, int rank, int size, const GroupOptions& options, const LikeNccl& like)
      : Backend(rank, size),
        timeout_(options.timeout),
        eager_(like.connects_with_group) {
    std::vector<int> ranks = options.world_ranks;
    for (int r = 0; static_cast<int>(ranks.size()) < size; ++r) {
      ranks.push_back(r);
    }
    Machine& machine = Machine::the();
    if (rank == 0) {
      const std::scoped_lock lock(machine.mutex);
      static int64_t number = 0;
      group_ = machine.make_group(ranks, like.fifo_bytes);
      machine.rendezvous[++number] = group_;
      const std::string text = std::to_string(number);
      store->set("like_nccl", std::vector<uint8_t>(text.begin(), text.end()));
    } else {
      const std::vector<uint8_t> text = store->get("like_nccl");
      const std::scoped_lock lock(machine.mutex);
      group_ = machine.rendezvous.at(std::stoll(std::string(text.begin(), text.end())));
    }
    {
      const std::scoped_lock lock(machine.mutex);
      group_->streams[static_cast<size_t>(rank)].host = std::this_thread::get_id();
    }
    // All host threads must be registered before any of them waits.
    if (store->add("like_nccl/came", 1) == size) {
      store->set("like_nccl/all", std::vector<uint8_t>{1});
    }
    store->wait({"like_nccl/all"});
    if (rank == 0) {
      const std::scoped_lock lock(machine.mutex);
      std::erase_if(machine.rendezvous, [&](const auto& entry) { return entry.second == group_; });
    }
    if (eager_) {
      connect(*group_, rank);
    }
  }
  ~LikeNcclBackend() override { Machine::the().end(*group_, rank_); }

  const std::string getBackendName() const override { return "like-nccl"; }
  bool supportsCoalescing() const override { return true; }

  void startCoalescing() override { coalesced_ = std::make_shared<Launch>(); }
  WorkPtr endCoalescing() override {
    return launch(group_, rank_, std::exchange(coalesced_, nullptr));
  }

  WorkPtr send(std::vector<Tensor>& tensors, int to, int) override {
    Part part = message_with(Part::Kind::kSend, to);
    part.sent = tensors.at(0).clone();
    part.given = tensors.at(0);
    return message(std::move(part), "send to", tensors.at(0));
  }
  WorkPtr recv(std::vector<Tensor>& tensors, int from, int) override {
    Part part = message_with(Part::Kind::kReceive, from);
    part.into = tensors.at(0);
    return message(std::move(part), "receive from", tensors.at(0));
  }

  WorkPtr allreduce(std::vector<Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    const auto reduce = options.reduceOp;
    return collective(
        "all_reduce", int{reduce.op_}, tensors.at(0), tensors.at(0), [reduce](const auto& sent) {
          return std::vector<Tensor>(sent.size(), reduced(sent, reduce));
        });
  }
  WorkPtr _reduce_scatter_base(
      Tensor& out, Tensor& in, const c10d::ReduceScatterOptions& options) override {
    const auto reduce = options.reduceOp;
    return collective("reduce_scatter", int{reduce.op_}, in, out, [reduce](const auto& sent) {
      return reduced(sent, reduce).chunk(static_cast<int64_t>(sent.size()));
    });
  }
  WorkPtr _allgather_base(Tensor& out, Tensor& in, const c10d::AllgatherOptions&) override {
    return collective("all_gather", 0, in, out, [](const auto& sent) {
      return std::vector<Tensor>(sent.size(), at::cat(sent));
    });
  }
  WorkPtr broadcast(std::vector<Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    const auto root = options.rootRank;
    return collective(
        "broadcast",
        static_cast<int>(root),
        tensors.at(0),
        tensors.at(0),
        [root](const auto& sent) {
          return std::vector<Tensor>(sent.size(), sent[static_cast<size_t>(root)]);
        });
  }
  WorkPtr alltoall_base(
      Tensor& out,
      Tensor& in,
      std::vector<int64_t>&,
      std::vector<int64_t>&,
      const c10d::AllToAllOptions&) override {
    return collective("all_to_all", 0, in, out, [](const auto& sent) {
      const auto ranks = static_cast<int64_t>(sent.size());
      std::vector<Tensor> made;
      for (int64_t r = 0; r < ranks; ++r) {
        std::vector<Tensor> parts;
        for (const Tensor& whole : sent) {
          parts.push_back(whole.chunk(ranks)[static_cast<size_t>(r)]);
        }
        made.push_back(at::cat(parts));
      }
      return made;
    });
  }

 private:
  /// Reduces in the tensors' type and in rank order, with the rounding of NCCL's ring.
  static Tensor reduced(const std::vector<Tensor>& sent, const c10d::ReduceOp& reduce) {
    Tensor result = sent.front().clone();
    for (size_t r = 1; r < sent.size(); ++r) {
      result = reduce.op_ == c10d::ReduceOp::SUM   ? result.add(sent[r])
               : reduce.op_ == c10d::ReduceOp::MAX ? at::maximum(result, sent[r])
                                                   : at::minimum(result, sent[r]);
    }
    return result;
  }
  static Part message_with(Part::Kind kind, int peer) {
    Part part;
    part.kind = kind;
    part.peer = peer;
    return part;
  }
  static std::string text_of(const Tensor& tensor) {
    return fmt::format(
        "{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  }

  template <class Make>
  WorkPtr collective(const char* name, int detail, const Tensor& in, const Tensor& out, Make make) {
    Part part;
    // Uses flat sizes, because ranks may pass the same buffer with different shapes.
    part.what = fmt::format(
        "{} ({}) {} {} -> {}",
        name,
        detail,
        c10::toString(in.scalar_type()),
        in.numel(),
        out.numel());
    part.sent = in.reshape({-1}).clone();
    part.given = in;
    part.into = out;
    part.make = make;
    auto launched = std::make_shared<Launch>();
    if (coalesced_ != nullptr) {
      throw std::logic_error("a collective among coalesced messages");
    }
    const WorkPtr work = launch(group_, rank_, launched, std::make_shared<Part>(std::move(part)));
    return work;
  }

  WorkPtr message(Part part, const char* verb, const Tensor& tensor) {
    const int peer = part.peer;
    const auto world_rank = [&](int rank) {
      return group_->world_ranks[static_cast<size_t>(rank)];
    };
    part.what = fmt::format(
        "rank {}: {} {} {}", world_rank(rank_), verb, world_rank(peer), text_of(tensor));
    auto shared = std::make_shared<Part>(std::move(part));
    if (coalesced_ != nullptr) {
      poison_result(*shared);
      coalesced_->parts.push_back(shared);
      return c10::make_intrusive<LikeNcclWork>(group_, rank_, coalesced_, timeout_);
    }
    if (eager_) {
      return launch(group_, rank_, std::make_shared<Launch>(), shared);
    }
    shared->peer = rank_ < peer ? 1 : 0;
    return launch(
        Machine::the().pair_of(*group_, rank_, peer),
        rank_ < peer ? 0 : 1,
        std::make_shared<Launch>(),
        shared);
  }

  WorkPtr launch(
      const GroupPtr& group,
      int rank,
      LaunchPtr launched,
      const std::shared_ptr<Part>& part = nullptr) {
    if (part != nullptr) {
      poison_result(*part);
      launched->parts.push_back(part);
    }
    connect(*group, rank);
    Machine::the().enqueue(*group, rank, launched);
    return c10::make_intrusive<LikeNcclWork>(group, rank, launched, timeout_);
  }
  static void poison_result(const Part& part) {
    const at::NoGradGuard no_grad;
    const bool in_place = overlap(part.given, part.into);
    if (!part.into.defined() || (in_place && part.given.numel() < part.into.numel())) {
      return;  // a rank may read its own slice of the gathered tensor
    }
    poison(part.into);
  }
  void connect(Group& group, int rank) { Machine::the().connect(group, rank, timeout_); }

  GroupPtr group_;
  milliseconds timeout_;
  bool eager_;
  LaunchPtr coalesced_;
};

}  // namespace like_nccl

UseLikeNccl::UseLikeNccl(const LikeNccl& options) {
  set_host_factory([options](const Store& store, int rank, int size, const GroupOptions& group) {
    return c10::make_intrusive<like_nccl::LikeNcclBackend>(store, rank, size, group, options);
  });
}

UseLikeNccl::~UseLikeNccl() {
  set_host_factory(nullptr);
}

}  // namespace lockstep::comm
