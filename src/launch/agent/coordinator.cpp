#include "launch/agent/coordinator.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <list>
#include <numeric>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "base/error.h"
#include "base/log.h"
#include "launch/agent/channel.h"
#include "launch/agent/guest.h"
#include "launch/agent/handshake.h"
#include "launch/agent/meeting.h"
#include "launch/agent/roster.h"
#include "launch/system/job_store.h"
#include "launch/system/secret.h"
#include "launch/workers/attempt.h"
#include "launch/workers/failure_list.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{250}, kBeat{1000}, kGreeting{10000}, kFarewell{5000};
constexpr milliseconds kRefusal{1000};  // for reading why, before the connection is closed
constexpr milliseconds kLastCallAgain{
    500};  // for the rounds after the first: survivors are here already
constexpr size_t kMostProblems = 64, kLongestProblem = 500;
// Connections of those who have not proved the secret give way to newer ones, so that they cannot
// lock agents out.
constexpr size_t kMostGuests = 4096, kMostStrangers = 1024;

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

}  // namespace

class Coordinator::State {
 public:
  State(const LaunchPlan& plan, Socket listener, std::string address)
      : plan_(plan),
        listener_(std::move(listener)),
        address_(std::move(address)) {
    rules_ = {plan.min_nodes, plan.max_nodes, plan.meeting.last_call, plan.meeting.join_timeout};
    loop_.watch(listener_.get(), [this] { accept(); });
    thread_ = std::thread([this] { run(); });
  }

  ~State() {
    leaving_ = true;
    loop_.wake();
    thread_.join();
    loop_.forget(listener_.get());
  }

 private:
  enum class Phase { kGathering, kChecking, kRunning, kStopping, kOver };

  /// A message, and at which stages a guest may send it.
  struct Rule {
    const char* message;
    void (State::*take)(Guest& guest, const json& message);
    unsigned stages;
  };
  static const Rule kRules[];

  void run();
  void accept();
  void make_room_for_a_stranger();
  void hear(Guest& guest, const json& message);
  void greet(Guest& guest, const json& message);
  void take_ready(Guest& guest, const json& message);
  void take_beat(Guest&, const json&) {}
  void refuse(Guest& guest, const std::string& why);
  void lose(Guest& guest, const std::string& why);
  void look_after_guests();
  void gather();
  void begin_round();
  std::set<std::string> addresses_of_members() const;
  void checked(Guest& guest, const json& message);
  void take_in_latecomers();
  void ending(Guest& guest, const json& message);
  void ended(Guest& guest, const json& message);
  void stop_round(const std::string& why);
  bool repeats();
  void settle();
  void end_job(AttemptEnd end, int code);
  bool everybody(Guest::Stage stage) const;
  /// The round ends because nodes come, and nothing has failed.
  bool making_room() const { return membership_changed_ && end_ == AttemptEnd::kSucceeded; }
  void tell_round(const json& message);
  int ready() const;

  const LaunchPlan plan_;
  Socket listener_;
  const std::string address_;
  GatheringRules rules_;
  EventLoop loop_;
  std::thread thread_;
  std::atomic<bool> leaving_{false};

  std::list<Guest> guests_;
  Phase phase_ = Phase::kGathering;
  Clock::time_point gathering_since_ = Clock::now(), enough_since_ = Clock::now(),
                    last_beat_ = Clock::now();
  JobIdentity job_ = JobIdentity::draw();
  int64_t next_id_ = 1;
  int rounds_ = 0, restarts_ = 0;
  std::vector<int64_t> members_;  // of the round, in rank order
  std::optional<JobStore> store_;
  // How the round ends.
  AttemptEnd end_ = AttemptEnd::kSucceeded;
  int exit_code_ = 0, signal_ = 0;
  bool membership_changed_ = false;
  bool gentle_ = false;     // the workers were stopped so that they may save
  bool made_room_ = false;  // and some had not finished their work
  bool stuck_ = false;      // some node cannot start workers again
  std::string reason_;
  FailureList failures_;
  Repetition repetition_;
  std::vector<std::string> problems_;
  json last_word_;  // what latecomers are told once the job is over
};

void Coordinator::State::run() {
  std::optional<Clock::time_point> left;
  while (true) {
    try {
      loop_.wait(kTick);
      look_after_guests();
      gather();
    } catch (const std::exception& error) {
      reason_ = error.what();
      end_job(AttemptEnd::kFailed, exit_code(ErrorKind::kEnvironment));
    }
    guests_.remove_if([](const Guest& guest) { return guest.stage == Guest::Stage::kGone; });
    if (leaving_) {
      left = left.value_or(Clock::now());
      // Agents close their end once they have read how the job ended.
      if (guests_.empty() || phase_ != Phase::kOver || since(*left) > kFarewell) {
        break;
      }
    }
  }
  guests_.clear();
}

void Coordinator::State::accept() {
  Socket socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) {
      // Others may leave: the connection waits in the kernel's queue.
      std::this_thread::sleep_for(milliseconds(10));
    }
    return;
  }
  // Without a secret an address of this machine's own is at least no other user's meeting point.
  const bool is_open = plan_.meeting.secret.empty() && !plan_.meeting.insecure;
  if (is_open && !is_from_own_user(socket)) {
    return;
  }
  make_room_for_a_stranger();
  if (guests_.size() >= kMostGuests) {
    return;
  }
  Guest& guest = guests_.emplace_back();
  guest.challenge = random_hex();
  try {
    guest.channel = std::make_unique<Channel>(
        loop_,
        std::move(socket),
        [this, &guest](const json& message) { hear(guest, message); },
        [this, &guest](const std::string& why) { lose(guest, why); });
  } catch (const Error& error) {
    log_warning("an agent could not be heard: {}", error.message());
    guests_.pop_back();
    return;
  }
  guest.channel->send(
      {{"lockstep", kProtocol},
       {"challenge", guest.challenge},
       {"secret", !plan_.meeting.secret.empty()}});
}

void Coordinator::State::make_room_for_a_stranger() {
  Guest* oldest = nullptr;
  size_t strangers = 0;
  for (Guest& guest : guests_) {
    if (guest.stranger()) {
      oldest = oldest == nullptr ? &guest : oldest;  // the list is in the order of coming
      ++strangers;
    }
  }
  if (strangers >= kMostStrangers) {
    oldest->channel->close("others wait");
  }
}

const Coordinator::State::Rule Coordinator::State::kRules[] = {
    {"join", &State::greet, at_stages({Guest::Stage::kGreeting})},
    {"ready", &State::take_ready, at_stages({Guest::Stage::kIdle})},
    {"checked", &State::checked, at_stages({Guest::Stage::kChecking})},
    {"ending", &State::ending, at_stages({Guest::Stage::kChecking, Guest::Stage::kRunning})},
    {"ended", &State::ended, at_stages({Guest::Stage::kChecking, Guest::Stage::kRunning})},
    {"beat",
     &State::take_beat,
     at_stages(
         {Guest::Stage::kIdle,
          Guest::Stage::kReady,
          Guest::Stage::kChecking,
          Guest::Stage::kRunning,
          Guest::Stage::kEnded})},
};

void Coordinator::State::hear(Guest& guest, const json& message) {
  for (const Rule& rule : kRules) {
    if (message.is_object() && message.contains(rule.message)) {
      if ((rule.stages & at_stages({guest.stage})) == 0) {
        throw Error(ErrorKind::kPeerLost, fmt::format("'{}' has no place here", rule.message));
      }
      (this->*rule.take)(guest, message);
      return;
    }
  }
  throw Error(ErrorKind::kPeerLost, "it is none that agents send");
}

void Coordinator::State::take_ready(Guest& guest, const json& /*message*/) {
  guest.stage = Guest::Stage::kReady;
  if (phase_ == Phase::kOver) {
    guest.channel->send(last_word_);
  } else if (phase_ == Phase::kRunning) {
    take_in_latecomers();
  }
}

// A round that has room ends for those who came after it began.
void Coordinator::State::take_in_latecomers() {
  for (const Guest& guest : guests_) {
    if (guest.stage == Guest::Stage::kReady && static_cast<int>(members_.size()) < rules_.most) {
      membership_changed_ = true;
      log_info("{} joins: the workers may save, and are started again with it", guest.node.name());
      stop_round(guest.node.name() + " joins");
      return;
    }
  }
}

void Coordinator::State::refuse(Guest& guest, const std::string& why) {
  log_warning("an agent at {} was refused: {}", peer_address(guest.channel->socket()), why);
  guest.channel->send({{"refused", why}});
  guest.stage = Guest::Stage::kRefused;
  guest.refused = Clock::now();
}

void Coordinator::State::greet(Guest& guest, const json& message) {
  const std::string run_id = message.at("join").get<std::string>();
  const std::string& secret = plan_.meeting.secret;
  const Handshake said{
      guest.challenge,
      message.at("nonce").get<std::string>(),
      plan_.run_id,
      introduction(message.at("node"))};
  if (!secret.empty() && !equal_in_constant_time(
                             message.at("proof").get<std::string>(), said.proof(secret, "agent"))) {
    refuse(
        guest,
        "the secret is not the same (--rdzv-secret-file), or the job's id is another (--rdzv-id)");
    return;
  }
  if (run_id != plan_.run_id) {
    refuse(guest, "the job here has another id (--rdzv-id)");
    return;
  }
  guest.node = node_from_json(message.at("node"));
  guest.node.id = next_id_++;
  const bool fixed = plan_.meeting.kind == MeetingPoint::Kind::kStatic;
  for (const Guest& other : guests_) {
    if (fixed && &other != &guest && other.welcome() &&
        other.node.node_rank == guest.node.node_rank) {
      const int rank = guest.node.node_rank;
      guest.node = {};
      refuse(
          guest, fmt::format("node rank {} is taken by {} (--node-rank)", rank, other.node.name()));
      return;
    }
  }
  guest.stage = Guest::Stage::kIdle;
  guest.channel->trust();
  guest.channel->send({{"welcome", guest.node.id}, {"proof", said.proof(secret, "host")}});
  if (!secret.empty()) {
    guest.channel->seal(said.key(secret, "host"), said.key(secret, "agent"));
  }
}

void Coordinator::State::lose(Guest& guest, const std::string& why) {
  const bool took_part = guest.in_round();
  guest.stage = Guest::Stage::kGone;
  if (took_part && phase_ != Phase::kOver) {
    if (end_ == AttemptEnd::kSucceeded) {
      end_ = AttemptEnd::kFailed;
      exit_code_ = exit_code(ErrorKind::kPeerLost);
      reason_ = fmt::format("node {} was lost: {}", guest.node.name(), why);
      log_error("{}", reason_);
    }
    stop_round(reason_);
    settle();
  }
}

void Coordinator::State::look_after_guests() {
  const bool beat = since(last_beat_) >= kBeat;
  if (beat) {
    last_beat_ = Clock::now();
  }
  // Half a second early: what was last heard may be that much older than the silence.
  const milliseconds silent = plan_.meeting.heartbeat_timeout - milliseconds(500);
  for (Guest& guest : guests_) {
    if (guest.stage == Guest::Stage::kGone) {
      continue;
    }
    if (guest.stage == Guest::Stage::kGreeting && since(guest.came) > kGreeting) {
      guest.channel->close("it did not say who it is");
    } else if (guest.stage == Guest::Stage::kRefused && since(guest.refused) > kRefusal) {
      guest.channel->close("it was refused");
    } else if (guest.welcome() && since(guest.channel->heard()) > silent) {
      guest.channel->close(fmt::format(
          "silent for {:.1f} s",
          static_cast<double>(since(guest.channel->heard()).count()) / 1000));
    } else if (beat && guest.welcome()) {
      guest.channel->send({{"beat", 1}});
    }
  }
}

int Coordinator::State::ready() const {
  return static_cast<int>(std::count_if(guests_.begin(), guests_.end(), [](const Guest& guest) {
    return guest.stage == Guest::Stage::kReady;
  }));
}

void Coordinator::State::gather() {
  if (phase_ != Phase::kGathering) {
    return;
  }
  const int count = ready();
  if (count < rules_.least) {
    enough_since_ = Clock::now();
  }
  switch (gathering(rules_, count, since(enough_since_), since(gathering_since_))) {
    case Gathering::kWait:
      return;
    case Gathering::kComplete:
      begin_round();
      return;
    case Gathering::kGiveUp:
      break;
  }
  std::vector<std::string> names;
  for (const Guest& guest : guests_) {
    if (guest.stage == Guest::Stage::kReady) {
      names.push_back(guest.node.name());
    }
  }
  reason_ += fmt::format(
      "{}only {} of {} nodes came within {} s: {}",
      reason_.empty() ? "" : "; then ",
      count,
      rules_.least,
      rules_.join_timeout.count() / 1000,
      fmt::join(names, ", "));
  end_job(AttemptEnd::kFailed, exit_code(ErrorKind::kPeerLost));
}

void Coordinator::State::begin_round() {
  std::vector<NodeInfo> nodes;
  for (Guest& guest : guests_) {
    if (guest.stage == Guest::Stage::kReady && static_cast<int>(nodes.size()) < rules_.most) {
      nodes.push_back(guest.node);
      guest.stage = Guest::Stage::kChecking;
    }
  }
  order_nodes(nodes);
  members_.clear();
  json list = json::array();
  for (const NodeInfo& node : nodes) {
    members_.push_back(node.id);
    list.push_back(to_json(node));
  }
  end_ = AttemptEnd::kSucceeded;
  exit_code_ = signal_ = 0;
  membership_changed_ = made_room_ = gentle_ = false;
  reason_.clear();
  failures_ = {};
  problems_.clear();
  store_.emplace(address_, rounds_ == 0 ? plan_.meeting.store_port : 0, addresses_of_members());
  phase_ = Phase::kChecking;
  if (rounds_ == 0) {
    job_.first_world_size =
        std::accumulate(nodes.begin(), nodes.end(), 0, [](int sum, const NodeInfo& node) {
          return sum + node.workers;
        });
  }
  tell_round(
      {{"round", rounds_++},
       {"restarts", restarts_},
       {"job",
        {{"id", job_.id}, {"started", job_.started}, {"first_world_size", job_.first_world_size}}},
       {"nodes", list},
       {"store", {{"address", address_}, {"port", store_->port()}}}});
}

// From where the workers of a round come: as their agents did, or as they say that they will.
std::set<std::string> Coordinator::State::addresses_of_members() const {
  std::set<std::string> addresses;
  for (const Guest& guest : guests_) {
    if (guest.in_round()) {
      addresses.insert(peer_address(guest.channel->socket()));
      addresses.insert(guest.node.address);
    }
  }
  return addresses;
}

void Coordinator::State::tell_round(const json& message) {
  for (Guest& guest : guests_) {
    if (guest.in_round()) {
      guest.channel->send(message);
    }
  }
}

bool Coordinator::State::everybody(Guest::Stage stage) const {
  return std::all_of(guests_.begin(), guests_.end(), [&](const Guest& guest) {
    return !guest.in_round() || guest.stage == stage;
  });
}

void Coordinator::State::checked(Guest& guest, const json& message) {
  if (phase_ != Phase::kChecking) {
    return;
  }
  for (const json& problem : message.at("problems")) {
    if (problems_.size() < kMostProblems) {
      problems_.push_back(printable(problem.get<std::string>().substr(0, kLongestProblem)));
    }
  }
  guest.stage = Guest::Stage::kRunning;
  if (!everybody(Guest::Stage::kRunning)) {
    return;
  }
  if (problems_.empty()) {
    phase_ = Phase::kRunning;
    tell_round({{"start", rounds_ - 1}});
    take_in_latecomers();
    return;
  }
  reason_ = "the nodes cannot all reach each other:";
  for (const std::string& problem : problems_) {
    reason_ += "\n    " + problem;
  }
  end_job(AttemptEnd::kFailed, exit_code(ErrorKind::kEnvironment));
}

void Coordinator::State::ending(Guest& /*guest*/, const json& message) {
  const auto end = end_in(message.at("ending"));
  if (end == AttemptEnd::kFailed && making_room()) {
    // A worker that lost a peer which had left already. Those that still save need not go on.
    stop_round("a worker failed while the others made room");
    return;
  }
  if (end == AttemptEnd::kFailed || end == AttemptEnd::kSignalled) {
    failures_.add_from(message);
    if (end_ == AttemptEnd::kSucceeded) {
      end_ = end;
      exit_code_ = message.at("exit_code").get<int>();
      signal_ = end == AttemptEnd::kSignalled ? signal_in(message.at("signal")) : 0;
    }
    stop_round("a worker failed or a signal came on another node");
  }
}

void Coordinator::State::ended(Guest& guest, const json& message) {
  guest.stage = Guest::Stage::kEnded;
  const auto end = end_in(message.at("ended"));
  stuck_ = stuck_ || message.value("stuck", false);
  made_room_ = made_room_ || (making_room() && end != AttemptEnd::kSucceeded);
  // Workers that save and leave because nodes come make room for them: the job goes on. They agree
  // on it among themselves, so a node may see it before it has heard why.
  if (end_ == AttemptEnd::kSucceeded && end == AttemptEnd::kPreempted && !making_room()) {
    end_ = end;
    exit_code_ = kExitPreempted;
  }
  if (end == AttemptEnd::kSignalled && end_ == AttemptEnd::kSignalled) {
    exit_code_ = message.at("exit_code").get<int>();  // known only now: workers may have saved
  }
  if (failures_.empty() && !making_room()) {
    failures_.add_from(message);
  }
  settle();
}

void Coordinator::State::stop_round(const std::string& why) {
  const bool running = phase_ == Phase::kChecking || phase_ == Phase::kRunning;
  if (running || (phase_ == Phase::kStopping && gentle_)) {
    phase_ = Phase::kStopping;
    gentle_ = running && making_room();
    tell_round({{"stop", why}, {"signal", signal_}, {"membership", gentle_}});
  }
}

bool Coordinator::State::repeats() {
  const bool repeats = end_ == AttemptEnd::kFailed && repetition_.expected(failures_.failures());
  if (repeats) {
    log_info("the workers are not started again: they would fail in the same way");
  }
  return repeats;
}

// Once every node's workers have ended: another round, or the end.
void Coordinator::State::settle() {
  const bool some_run = std::any_of(
      guests_.begin(), guests_.end(), [](const Guest& guest) { return guest.in_round(); });
  if (some_run || phase_ == Phase::kOver || phase_ == Phase::kGathering) {
    return;
  }
  const bool failed = end_ == AttemptEnd::kFailed;
  const bool again = restarts_ < plan_.max_restarts && !repeats();
  const bool goes_on = !stuck_ && (failed ? again : made_room_ && end_ == AttemptEnd::kSucceeded);
  if (!goes_on) {
    end_job(end_, exit_code_);
    return;
  }
  restarts_ += failed ? 1 : 0;
  phase_ = Phase::kGathering;
  gathering_since_ = enough_since_ = Clock::now();
  rules_.last_call = std::min(rules_.last_call, kLastCallAgain);
  json word{{"again", 1}, {"reason", reason_}};
  failures_.put_into(word);
  for (Guest& guest : guests_) {
    if (guest.stage == Guest::Stage::kEnded) {
      guest.stage = Guest::Stage::kIdle;
      guest.channel->send(word);
    }
  }
}

void Coordinator::State::end_job(AttemptEnd end, int code) {
  phase_ = Phase::kOver;
  last_word_ = {{"end", static_cast<int>(end)}, {"exit_code", code}, {"reason", reason_}};
  failures_.put_into(last_word_);
  for (Guest& guest : guests_) {
    if (guest.welcome()) {
      guest.channel->send(last_word_);
    }
  }
}

Coordinator::Coordinator(const LaunchPlan& plan, Socket listener, std::string address)
    : state_(std::make_unique<State>(plan, std::move(listener), std::move(address))) {}

Coordinator::~Coordinator() = default;

}  // namespace lockstep::launch
