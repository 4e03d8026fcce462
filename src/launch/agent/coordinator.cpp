#include "launch/agent/coordinator.h"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>

#include "base/error.h"
#include "base/json_number.h"
#include "base/log.h"
#include "launch/agent/coordinator_state.h"
#include "launch/agent/handshake.h"
#include "launch/system/secret.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{250}, kBeat{1000}, kGreeting{10000}, kFarewell{5000};
constexpr milliseconds kRefusal{1000};  // for reading why, before the connection is closed
// Connections of those who have not proved the secret give way to newer ones, so that they cannot
// lock agents out: above so many, or the nodes of the job, which may all come at once.
constexpr size_t kMostGuests = 16384, kMostStrangers = 1024;

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

}  // namespace

Coordinator::State::State(
    const LaunchPlan& plan,
    Socket listener,
    std::string address,
    Heritage before,
    Socket at_endpoint)
    : plan_(plan),
      listener_(std::move(listener)),
      at_endpoint_(std::move(at_endpoint)),
      address_(std::move(address)),
      heritage_(std::move(before)) {
  rules_ = {plan.min_nodes, plan.max_nodes, plan.meeting.last_call, plan.meeting.join_timeout};
  if (heritage_.hosts.empty()) {
    heritage_.job = JobIdentity::draw();
  } else {
    awaited_heirs_ = heritage_.heirs;
  }
  heritage_.hosts.push_back({address_, bound_port(listener_)});
  for (const Socket* each : {&listener_, &at_endpoint_}) {
    if (*each) {
      loop_.watch(each->get(), [this, each] { accept(*each); });
    }
  }
  thread_ = std::thread([this] { run(); });
}

Coordinator::State::~State() {
  leaving_ = true;
  loop_.wake();
  thread_.join();
  loop_.forget(listener_.get());
  loop_.forget(at_endpoint_.get());
}

void Coordinator::State::run() {
  std::optional<Clock::time_point> left;
  while (true) {
    try {
      const auto turn = Clock::now();
      loop_.wait(kTick);
      if (since(turn) > plan_.meeting.heartbeat_timeout) {
        stood_still_ = Clock::now();
      }
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

void Coordinator::State::accept(const Socket& listener) {
  Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
  if (strangers >= std::max(kMostStrangers, static_cast<size_t>(rules_.most))) {
    oldest->channel->close("others wait");
  }
}

const Coordinator::State::Rule Coordinator::State::kRules[] = {
    {"join", &State::greet, at_stages({Guest::Stage::kGreeting})},
    {"ready", &State::take_ready, at_stages({Guest::Stage::kIdle})},
    {"moved", &State::take_moved, at_stages({Guest::Stage::kIdle})},
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
  } else if (phase_ == Phase::kChecking || phase_ == Phase::kRunning) {
    guest.channel->send(roster_);
    if (phase_ == Phase::kRunning) {
      take_in_latecomers();
    }
  }
}

// Another node hosts the job since this one was given up: whoever is here goes there.
void Coordinator::State::take_moved(Guest& guest, const json& message) {
  const HostPlace now = place_from_json(message.at("moved"));
  const bool is_later = integer_of(message.at("term")) > heritage_.term();
  // A machine that was started anew has begun a job of its own, with the same command.
  const bool is_ours = message.at("job").get<std::string>() == heritage_.job.id ||
                       message.at("command").get<std::string>() == command_of(plan_);
  if (!is_later || !is_ours) {
    throw Error(ErrorKind::kPeerLost, "it hosts no later part of this job");
  }
  log_warning("the job went on without this host: {} port {} hosts it now", now.address, now.port);
  phase_ = Phase::kOver;
  last_word_ = {{"moved", to_json(now)}};
  for (Guest& other : guests_) {
    if (&other != &guest && other.welcome()) {
      other.channel->send(last_word_);
    }
  }
  guest.channel->close("it hosts the job now");
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
    // Workers that saved and left may have done so for the node that is lost: it stopped its own.
    if (end_ == AttemptEnd::kSucceeded || end_ == AttemptEnd::kPreempted) {
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
      guest.channel->catch_up();
      if (guest.welcome() && since(guest.channel->heard()) > silent) {
        guest.channel->close(fmt::format(
            "silent for {:.1f} s",
            static_cast<double>(since(guest.channel->heard()).count()) / 1000));
      }
    } else if (beat && guest.welcome()) {
      guest.channel->send({{"beat", 1}});
    }
  }
}

Coordinator::Coordinator(
    const LaunchPlan& plan,
    Socket listener,
    std::string address,
    Heritage before,
    Socket at_endpoint)
    : state_(std::make_unique<State>(
          plan,
          std::move(listener),
          std::move(address),
          std::move(before),
          std::move(at_endpoint))) {}

Coordinator::~Coordinator() = default;

}  // namespace lockstep::launch
