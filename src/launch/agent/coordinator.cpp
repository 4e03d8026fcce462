// Implements the coordinator's connections: joining, heartbeats and messages.
#include "launch/agent/coordinator.h"

#include <algorithm>
#include <cerrno>

#include <sys/resource.h>
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
constexpr size_t kMaxAgents = 16384;

// Limit of unauthenticated connections, or the number of nodes, which may all connect at once, if
// larger. Beyond it the oldest are closed, so that they cannot lock agents out. Agents, the store
// and the workers' pipes need descriptors as well.
size_t most_strangers(int nodes) {
  constexpr rlim_t kMost = 1024, kShare = 4;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  return std::max(
      static_cast<size_t>(std::min(kMost, files.rlim_cur / kShare)), static_cast<size_t>(nodes));
}

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

}  // namespace

Coordinator::State::State(
    const LaunchPlan& plan,
    Socket listener,
    std::string address,
    ReplicatedJobState before,
    Socket at_endpoint)
    : plan_(plan),
      listener_(std::move(listener)),
      at_endpoint_(std::move(at_endpoint)),
      address_(std::move(address)),
      replicated_state_(std::move(before)) {
  rules_ = {
      plan.min_nodes, plan.max_nodes, plan.rendezvous.last_call, plan.rendezvous.join_timeout};
  if (replicated_state_.hosts.empty()) {
    replicated_state_.job = JobIdentity::draw();
  } else {
    awaited_standbys_ = replicated_state_.standbys;
  }
  replicated_state_.hosts.push_back({address_, bound_port(listener_)});
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
      if (since(turn) > plan_.rendezvous.heartbeat_timeout) {
        stood_still_ = Clock::now();
      }
      serve_agents();
      gather();
    } catch (const std::exception& error) {
      reason_ = error.what();
      end_job(AttemptEnd::kFailed, exit_code(ErrorKind::kEnvironment));
    }
    agents_.remove_if(
        [](const AgentConnection& agent) { return agent.stage == AgentConnection::Stage::kGone; });
    if (leaving_) {
      left = left.value_or(Clock::now());
      // Agents close the connection after they have read how the job ended.
      if (agents_.empty() || phase_ != Phase::kOver || since(*left) > kFarewell) {
        break;
      }
    }
  }
  agents_.clear();
}

void Coordinator::State::accept(const Socket& listener) {
  Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) {
      // Wait until descriptors are closed elsewhere. The connection stays in the kernel's queue.
      std::this_thread::sleep_for(milliseconds(10));
    }
    return;
  }
  if (plan_.rendezvous.only_own_user() && !is_from_own_user(socket)) {
    return;
  }
  make_room_for_a_stranger();
  if (agents_.size() >= kMaxAgents) {
    return;
  }
  AgentConnection& agent = agents_.emplace_back();
  agent.challenge = random_hex();
  try {
    agent.channel = std::make_unique<Channel>(
        loop_,
        std::move(socket),
        [this, &agent](const json& message) { hear(agent, message); },
        [this, &agent](const std::string& why) { lose(agent, why); });
  } catch (const Error& error) {
    log_warning("cannot accept an agent's connection: {}", error.message());
    agents_.pop_back();
    return;
  }
  agent.channel->send(
      {{"lockstep", kProtocol},
       {"challenge", agent.challenge},
       {"secret", !plan_.rendezvous.secret.empty()}});
}

void Coordinator::State::make_room_for_a_stranger() {
  AgentConnection* oldest = nullptr;
  size_t strangers = 0;
  for (AgentConnection& agent : agents_) {
    if (agent.stranger()) {
      oldest = oldest == nullptr ? &agent : oldest;  // agents are listed in order of arrival
      ++strangers;
    }
  }
  if (strangers >= most_strangers(rules_.most)) {
    oldest->channel->close("too many unauthenticated connections");
  }
}

const Coordinator::State::Rule Coordinator::State::kRules[] = {
    {"join", &State::greet, at_stages({AgentConnection::Stage::kGreeting})},
    {"ready", &State::take_ready, at_stages({AgentConnection::Stage::kIdle})},
    {"moved", &State::take_moved, at_stages({AgentConnection::Stage::kIdle})},
    {"checked", &State::checked, at_stages({AgentConnection::Stage::kChecking})},
    {"ending",
     &State::ending,
     at_stages({AgentConnection::Stage::kChecking, AgentConnection::Stage::kRunning})},
    {"ended",
     &State::ended,
     at_stages({AgentConnection::Stage::kChecking, AgentConnection::Stage::kRunning})},
    {"beat",
     &State::take_beat,
     at_stages(
         {AgentConnection::Stage::kIdle,
          AgentConnection::Stage::kReady,
          AgentConnection::Stage::kChecking,
          AgentConnection::Stage::kRunning,
          AgentConnection::Stage::kEnded})},
};

void Coordinator::State::hear(AgentConnection& agent, const json& message) {
  for (const Rule& rule : kRules) {
    if (message.is_object() && message.contains(rule.message)) {
      if ((rule.stages & at_stages({agent.stage})) == 0) {
        throw Error(
            ErrorKind::kPeerLost,
            fmt::format("message '{}' is not allowed in this state", rule.message));
      }
      (this->*rule.take)(agent, message);
      return;
    }
  }
  throw Error(ErrorKind::kPeerLost, "unknown message");
}

void Coordinator::State::take_ready(AgentConnection& agent, const json& message) {
  if (message.contains("probe_port")) {  // another one than in its introduction
    take_probe(agent.node, message);
  }
  agent.stage = AgentConnection::Stage::kReady;
  if (phase_ == Phase::kOver) {
    agent.channel->send(last_word_);
  } else if (phase_ == Phase::kChecking || phase_ == Phase::kRunning) {
    agent.channel->send(membership_);
    if (phase_ == Phase::kRunning) {
      take_in_latecomers();
    }
  }
}

// Handles the message that another node has taken over the job: redirects all agents to it.
void Coordinator::State::take_moved(AgentConnection& agent, const json& message) {
  const HostPlace now = place_from_json(message.at("moved"));
  const bool is_later = integer_of(message.at("term")) > replicated_state_.term();
  // After a reboot, this machine may have started the job again, with another id but the same
  // command.
  const bool is_ours = message.at("job").get<std::string>() == replicated_state_.job.id ||
                       message.at("command").get<std::string>() == command_of(plan_);
  if (!is_later || !is_ours) {
    throw Error(ErrorKind::kPeerLost, "the sender does not host a later term of this job");
  }
  log_warning(
      "the job continued without this coordinator; {} port {} hosts it now", now.address, now.port);
  phase_ = Phase::kOver;
  last_word_ = {{"moved", to_json(now)}};
  for (AgentConnection& other : agents_) {
    if (&other != &agent && other.welcome()) {
      other.channel->send(last_word_);
    }
  }
  agent.channel->close("that node hosts the job now");
}

void Coordinator::State::refuse(AgentConnection& agent, const std::string& why) {
  const std::string line = refusals_.add(peer_address(agent.channel->socket()), why, Clock::now());
  if (!line.empty()) {
    log_warning("{}", line);
  }
  agent.channel->send({{"refused", why}});
  agent.stage = AgentConnection::Stage::kRefused;
  agent.refused = Clock::now();
}

void Coordinator::State::greet(AgentConnection& agent, const json& message) {
  const std::string run_id = message.at("join").get<std::string>();
  const std::string& secret = plan_.rendezvous.secret;
  const Handshake said{
      agent.challenge,
      message.at("nonce").get<std::string>(),
      plan_.run_id,
      introduction(message.at("node"))};
  if (!secret.empty() && !said.is_proved(secret, "agent", message.at("proof").get<std::string>())) {
    refuse(agent, "the secret (--rdzv-secret-file) or the job id (--rdzv-id) differs");
    return;
  }
  if (run_id != plan_.run_id) {
    refuse(agent, "the job id differs (--rdzv-id)");
    return;
  }
  agent.node = node_from_json(message.at("node"));
  agent.node.id = next_id_++;
  const bool fixed = plan_.rendezvous.kind == RendezvousPoint::Kind::kStatic;
  for (const AgentConnection& other : agents_) {
    if (fixed && &other != &agent && other.welcome() &&
        other.node.node_rank == agent.node.node_rank) {
      const int rank = agent.node.node_rank;
      agent.node = {};
      refuse(
          agent, fmt::format("node rank {} is taken by {} (--node-rank)", rank, other.node.name()));
      return;
    }
  }
  agent.stage = AgentConnection::Stage::kIdle;
  agent.channel->trust();
  agent.channel->send({{"welcome", agent.node.id}, {"proof", said.proof(secret, "host")}});
  if (!secret.empty()) {
    agent.channel->seal(said.key(secret, "host"), said.key(secret, "agent"));
  }
}

void Coordinator::State::lose(AgentConnection& agent, const std::string& why) {
  const bool took_part = agent.in_round();
  agent.stage = AgentConnection::Stage::kGone;
  if (took_part && phase_ != Phase::kOver) {
    // If workers saved and exited, the cause may have been the loss of the node.
    if (end_ == AttemptEnd::kSucceeded || end_ == AttemptEnd::kPreempted) {
      end_ = AttemptEnd::kFailed;
      exit_code_ = exit_code(ErrorKind::kPeerLost);
      reason_ = fmt::format("node {} was lost: {}", agent.node.name(), why);
      log_error("{}", reason_);
    }
    stop_round(reason_);
    settle();
  }
}

void Coordinator::State::serve_agents() {
  const bool beat = since(last_beat_) >= kBeat;
  if (beat) {
    last_beat_ = Clock::now();
  }
  // Subtract half a second, because the last heartbeat may have been sent that much earlier.
  const milliseconds silent = plan_.rendezvous.heartbeat_timeout - milliseconds(500);
  for (AgentConnection& agent : agents_) {
    if (agent.stage == AgentConnection::Stage::kGone) {
      continue;
    }
    if (agent.stage == AgentConnection::Stage::kGreeting && since(agent.came) > kGreeting) {
      agent.channel->close("no introduction was received");
    } else if (agent.stage == AgentConnection::Stage::kRefused && since(agent.refused) > kRefusal) {
      agent.channel->close("the agent was refused");
    } else if (agent.welcome() && since(agent.channel->heard()) > silent) {
      agent.channel->catch_up();
      if (agent.welcome() && since(agent.channel->heard()) > silent) {
        agent.channel->close(fmt::format(
            "silent for {:.1f} s",
            static_cast<double>(since(agent.channel->heard()).count()) / 1000));
      }
    } else if (beat && agent.welcome()) {
      agent.channel->send({{"beat", 1}});
    }
  }
}

Coordinator::Coordinator(
    const LaunchPlan& plan,
    Socket listener,
    std::string address,
    ReplicatedJobState before,
    Socket at_endpoint)
    : state_(std::make_unique<State>(
          plan,
          std::move(listener),
          std::move(address),
          std::move(before),
          std::move(at_endpoint))) {}

Coordinator::~Coordinator() = default;

}  // namespace lockstep::launch
