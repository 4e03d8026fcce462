// Implements the agent's side of the rendezvous, including failover.
#include "launch/agent/coordinator_client.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_number.h"
#include "base/log.h"
#include "launch/agent/agent_connection.h"
#include "launch/agent/channel.h"
#include "launch/agent/coordinator.h"
#include "launch/agent/handshake.h"
#include "launch/agent/probe.h"
#include "launch/agent/replicated_state.h"
#include "launch/system/event_loop.h"
#include "launch/workers/failure_list.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kConnect{2000}, kRetry{200}, kProbe{3000}, kLeastProbe{1000}, kTell{5000};

// Returns true if this node hosts the coordinator.
bool hosts(const RendezvousPoint& rendezvous) {
  if (rendezvous.kind == RendezvousPoint::Kind::kStatic) {
    return rendezvous.node_rank == 0;
  }
  if (rendezvous.is_host) {
    return *rendezvous.is_host;
  }
  const std::vector<std::string> addresses = resolve(rendezvous.host);
  return rendezvous.host == own_host_name() ||
         std::any_of(addresses.begin(), addresses.end(), is_own_address);
}

// Address of the rendezvous endpoint as this node reaches it or, on the host, listens on it: only
// the named address.
std::string address_of(const RendezvousPoint& rendezvous, bool is_host) {
  const std::vector<std::string> addresses = resolve(rendezvous.host);
  const std::string first = addresses.empty() ? rendezvous.host : addresses.front();
  const bool here = is_loopback_only_here(rendezvous.host) || (is_host && addresses.empty());
  const std::string outside = here ? outside_address() : "";
  // Other nodes resolve the name again for each attempt, since it may be registered later.
  return !outside.empty() ? outside : is_host ? first : rendezvous.host;
}

// Throws Error (config) if other machines can reach the endpoint and no secret is set. Otherwise
// any process that joins would become a node of the job and receive the addresses of all nodes.
void want_a_secret(const RendezvousPoint& rendezvous, const std::string& address) {
  const std::vector<std::string> numbers = resolve(address);
  const bool reachable =
      numbers.empty() || !std::all_of(numbers.begin(), numbers.end(), is_loopback);
  if (!rendezvous.secret.empty() || !reachable) {
    return;
  }
  if (!rendezvous.insecure) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "a secret is required for a rendezvous at {}: otherwise any process that reaches this "
            "address could join",
            address),
        "create one with (umask 077; head -c 32 /dev/urandom | base64 > FILE) and pass "
        "--rdzv-secret-file FILE on every node, or pass --rdzv-insecure to accept every process "
        "that reaches the address");
  }
  if (is_public(address)) {
    log_warning(
        "rendezvous at the public address {} without a secret: any process that reaches it can "
        "join",
        address);
  }
}

void put_failures(const AttemptResult& result, json& message) {
  FailureList list;
  list.add_all(result.failures);
  list.put_into(message);
}

// Outcome of this node's workers, which failed, if the coordinator reports a success.
Verdict own_outcome(const AttemptResult& result) {
  Verdict verdict;
  verdict.end = result.end;
  verdict.failures = result.failures;
  verdict.exit_code = result.exit_code;
  verdict.reason = "the coordinator reported success, but the workers of this node failed";
  return verdict;
}

class Remote : public Rendezvous {
 public:
  Remote(Guard& guard, const LaunchPlan& plan);
  ~Remote() override;

  std::optional<Round> next_round() override;
  Interruption interruption() const override;
  void ending(const AttemptResult& result) override;
  Verdict conclude(const AttemptResult& result) override;

 private:
  void host();
  bool connect();
  Socket reach();
  bool introduce(Socket socket, milliseconds patience);
  bool follow_standby(const AttemptResult& result);
  void host_as_standby(const AttemptResult& result);
  void listen_for_probes();
  void send_ready();
  void hear(const json& message);
  std::vector<NodeInfo> take_membership(const json& message);
  void take_round(const json& message);
  void take_verdict(const json& message);
  void beat();
  Verdict lost_host() const;
  std::string host_lost() const;
  std::optional<Round> give_up();

  Guard& guard_;
  const LaunchPlan& plan_;
  std::optional<Coordinator> coordinator_;
  std::optional<ProbeListener> probe_;
  std::unique_ptr<Channel> channel_;
  int timer_ = -1;
  NodeInfo self_;
  std::string lost_;
  std::string host_;  // name of the coordinator's node, for messages
  HostPlace place_;   // address of the coordinator as seen from this node
  std::optional<Greeting> greeting_;
  std::optional<ReplicatedJobState> replicated_state_;  // of the last round received
  std::vector<NodeInfo> standbys_;                      // standby coordinators, in order
  Socket own_place_;    // socket on which this node would host the job
  bool moved_ = false;  // the coordinator reported its successor
  bool started_ = false, stopped_ = false;
  Interruption why_stopped_ = Interruption::kNone;
  std::optional<Round> round_;
  std::optional<Verdict> verdict_;
};

Remote::Remote(Guard& guard, const LaunchPlan& plan) : guard_(guard), plan_(plan) {
  const bool is_host = hosts(plan.rendezvous);
  host_ = plan.rendezvous.host;
  place_ = {address_of(plan.rendezvous, is_host), plan.rendezvous.port};
  want_a_secret(plan.rendezvous, place_.address);
  if (is_host) {
    host();
  }
  timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  itimerspec each{};
  each.it_interval.tv_sec = each.it_value.tv_sec = 1;
  ::timerfd_settime(timer_, 0, &each, nullptr);
  guard_.loop().watch(timer_, [this] { beat(); });
}

Remote::~Remote() {
  guard_.loop().forget(timer_);
  ::close(timer_);
  channel_.reset();
  coordinator_
      .reset();  // last, because it waits until the other agents have read the job's outcome
}

void Remote::host() {
  const bool shared =
      plan_.rendezvous.kind == RendezvousPoint::Kind::kDynamic && !plan_.rendezvous.is_host;
  Socket listener;
  try {
    listener = listen_on(place_.address, place_.port);
  } catch (const Error&) {
    // With several agents on one machine the first one hosts and the others join it. The greeting
    // detects a foreign program, or another user's, on the port.
    if (!shared) {
      throw;
    }
    return;
  }
  if (place_.address != plan_.rendezvous.host && plan_.rendezvous.host != "localhost") {
    log_info("{} resolves to {} for the agents of this job", plan_.rendezvous.host, place_.address);
  }
  coordinator_.emplace(plan_, std::move(listener), place_.address);
}

// Connects to the coordinator. Retries until the join timeout, because the host may start later.
// Returns an empty socket if a signal arrives.
Socket Remote::reach() {
  const RendezvousPoint& rendezvous = plan_.rendezvous;
  const auto begin = Clock::now();
  bool told = false;
  while (!guard_.signal()) {
    Connecting attempt = connect_within(place_.address, place_.port, kConnect);
    if (attempt.error.empty()) {
      return std::move(attempt.socket);
    }
    const std::string text = fmt::format(
        "rendezvous endpoint {} port {} is unreachable from {}: {}",
        rendezvous.host,
        rendezvous.port,
        route_to(rendezvous.host),
        attempt.error);
    if (Clock::now() - begin > rendezvous.join_timeout) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format("{} (tried for {} s)", text, rendezvous.join_timeout.count() / 1000),
          "check that the host node is running, its address and port, and firewalls; --local-addr "
          "selects this node's address");
    }
    if (!told && Clock::now() - begin > std::chrono::seconds(2)) {
      told = true;
      log_warning("{}; retrying for {} s", text, rendezvous.join_timeout.count() / 1000);
    }
    guard_.loop().wait(kRetry);
  }
  return {};
}

// Introduces this node to the coordinator. Returns false if the coordinator refused the greeting or
// the channel was lost.
bool Remote::introduce(Socket socket, milliseconds patience) {
  if (self_.address.empty()) {  // on the first call
    self_.host = own_host_name();
    self_.address = plan_.rendezvous.local_address.empty() ? own_address(socket)
                                                           : plan_.rendezvous.local_address;
    self_.pid = ::getpid();
    self_.workers = plan_.workers;
    self_.node_rank =
        plan_.rendezvous.kind == RendezvousPoint::Kind::kStatic ? plan_.rendezvous.node_rank : -1;
  }
  listen_for_probes();
  if (!own_place_) {
    own_place_ = listen_on(self_.address, 0);
    self_.host_port = bound_port(own_place_);
  }
  self_.hosts = coordinator_.has_value();
  const auto begin = Clock::now();
  greeting_.emplace(plan_.rendezvous, plan_.run_id, self_);
  lost_.clear();
  channel_ = std::make_unique<Channel>(
      guard_.loop(),
      std::move(socket),
      [this](const json& message) { hear(message); },
      [this](const std::string& reason) { lost_ = reason; });
  while (!greeting_->welcome() && channel_->open() && greeting_->refused().empty() &&
         !guard_.signal() && Clock::now() - begin < patience) {
    guard_.loop().wait(kRetry);
  }
  self_.id = greeting_->id();
  return greeting_->welcome();
}

// Opens the listener for the probes of the next round.
void Remote::listen_for_probes() {
  if (!probe_) {
    probe_.emplace(self_.address);
    self_.probe_port = probe_->port();
    self_.probe_token = probe_->token();
  }
}

void Remote::send_ready() {
  listen_for_probes();
  channel_->send(
      {{"ready", 1}, {"probe_port", self_.probe_port}, {"probe_token", self_.probe_token}});
}

bool Remote::connect() {
  Socket socket = reach();
  if (!socket) {
    return false;
  }
  const bool welcome = introduce(std::move(socket), kTell);
  if (greeting_->foreign_host()) {
    throw Error(
        ErrorKind::kEnvironment,
        greeting_->refused(),
        "choose another port with --rdzv-endpoint or --master-port, or pass --rdzv-secret-file "
        "FILE on every node");
  }
  if (!greeting_->refused().empty()) {
    throw Error(ErrorKind::kConfig, "the coordinator refused this node: " + greeting_->refused());
  }
  if (!welcome && !guard_.signal()) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "the program at {} port {} is not a coordinator of this job ({})",
            plan_.rendezvous.host,
            plan_.rendezvous.port,
            lost_.empty() ? "no answer" : lost_),
        "choose another port with --rdzv-endpoint or --master-port");
  }
  return welcome;
}

void Remote::hear(const json& message) {
  if (!greeting_->welcome()) {
    greeting_->take(message, *channel_);
    self_.id = greeting_->id();
  } else if (message.contains("round")) {
    take_round(message);
  } else if (message.contains("roster")) {
    take_membership(message);
  } else if (message.contains("moved")) {
    NodeInfo now;
    const HostPlace place = place_from_json(message.at("moved"));
    now.host = now.address = place.address;
    now.host_port = place.port;
    standbys_ = {now};
    moved_ = true;
    channel_->close("another node hosts the job now");
  } else if (message.contains("start")) {
    started_ = true;
  } else if (message.contains("stop")) {
    stopped_ = true;
    why_stopped_ =
        message.at("membership").get<bool>() ? Interruption::kMembership : Interruption::kFailure;
    if (message.at("signal") != 0 && !guard_.signal()) {
      guard_.take_signal(signal_in(message.at("signal")));
    }
  } else if (message.contains("again") || message.contains("end")) {
    take_verdict(message);
  }
}

// Reads the nodes of a round and the replicated job state.
std::vector<NodeInfo> Remote::take_membership(const json& message) {
  std::vector<NodeInfo> nodes;
  for (const json& entry : message.at(message.contains("roster") ? "roster" : "nodes")) {
    nodes.push_back(node_from_json(entry));
  }
  replicated_state_ = replicated_state_from_json(message.at("heritage"));
  standbys_ = standbys(nodes);
  return nodes;
}

void Remote::take_round(const json& message) {
  const std::vector<NodeInfo> nodes = take_membership(message);
  Round round;
  round.number = integer_of<int>(message.at("round"));
  round.restarts = replicated_state_->restarts.count();
  round.job = replicated_state_->job;
  round.term = replicated_state_->term();
  round.master_address = message.at("store").at("address").get<std::string>();
  round.master_port = integer_of<int>(message.at("store").at("port"));
  round.nodes = round.world_size = 0;
  for (const NodeInfo& node : nodes) {
    if (node.id == self_.id) {
      round.node = round.nodes;
      round.first_rank = round.world_size;
    }
    round.world_size += node.workers;
    ++round.nodes;
  }
  round_ = round;
  // Both probes together must take less time than the heartbeat timeout.
  const auto begin = Clock::now();
  std::vector<std::string> problems =
      probe_nodes(self_, tried_by(nodes, static_cast<size_t>(round.node)), kProbe);
  const auto taken = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  const std::string problem = probe_store(
      self_, round.master_address, round.master_port, std::max(kLeastProbe, kProbe - taken));
  if (!problem.empty()) {
    problems.push_back(problem);
  }
  channel_->send({{"checked", round.number}, {"problems", problems}});
}

void Remote::take_verdict(const json& message) {
  Verdict verdict;
  verdict.next = message.contains("again") ? Verdict::Next::kAgain : Verdict::Next::kEnd;
  verdict.reason = printable_lines(message.at("reason").get<std::string>());
  if (message.contains("end")) {
    verdict.end = static_cast<AttemptEnd>(integer_of<int>(message.at("end")));
    verdict.exit_code = integer_of<int>(message.at("exit_code"));
  }
  FailureList list;
  list.add_from(message);
  verdict.failures = list.failures();
  verdict.other_failures = list.others();
  verdict_ = std::move(verdict);
}

void Remote::beat() {
  uint64_t count = 0;
  [[maybe_unused]] const auto size = ::read(timer_, &count, sizeof count);
  if (channel_ == nullptr || !channel_->open() || !greeting_->welcome()) {
    return;
  }
  channel_->send({{"beat", 1}});
  const milliseconds limit = plan_.rendezvous.heartbeat_timeout - milliseconds(500);
  if (Clock::now() - channel_->heard() > limit) {
    channel_->catch_up();
  }
  if (channel_->open() && Clock::now() - channel_->heard() > limit) {
    channel_->close(fmt::format("silent for {:.1f} s", static_cast<double>(limit.count()) / 1000));
  }
}

std::string Remote::host_lost() const {
  return fmt::format("the coordinator's node {} was lost: {}", host_, lost_);
}

Verdict Remote::lost_host() const {
  Verdict verdict;
  verdict.end = AttemptEnd::kFailed;
  verdict.exit_code = exit_code(ErrorKind::kPeerLost);
  verdict.reason = host_lost();
  return verdict;
}

// Becomes the coordinator. Because the coordinator's node was lost, the last round counts as
// failed.
void Remote::host_as_standby(const AttemptResult& result) {
  ReplicatedJobState before = *replicated_state_;
  before.restarts.add();
  before.progress.in_vain(result.step, host_lost());
  Socket at_endpoint;
  try {
    at_endpoint = listen_on(self_.address, plan_.rendezvous.port);
  } catch (const Error&) {
    // If another program uses the port, later nodes must connect to this node's own endpoint.
  }
  log_warning(
      "this node hosts the job now, at {} port {}{}",
      self_.address,
      self_.host_port,
      at_endpoint ? fmt::format(" and {}", plan_.rendezvous.port) : "");
  coordinator_.emplace(
      plan_, std::move(own_place_), self_.address, std::move(before), std::move(at_endpoint));
}

// Called after the coordinator was lost or stepped down. Connects to the first standby coordinator
// that answers. If it is this node's turn, this node hosts the job and connects to itself. Returns
// false if no standby answers or the job must not restart.
bool Remote::follow_standby(const AttemptResult& result) {
  const bool may_go_on =
      moved_ || (replicated_state_ && replicated_state_->restarts.may_be_one_more(plan_.restarts));
  if (!may_go_on || result.stuck || guard_.signal()) {
    return false;
  }
  moved_ = false;
  const std::string lost = lost_;
  channel_.reset();
  coordinator_.reset();
  while (!standbys_.empty() && !guard_.signal()) {
    const NodeInfo standby = standbys_.front();
    standbys_.erase(standbys_.begin());
    const bool is_own = standby.address == self_.address && standby.host_port == self_.host_port;
    lost_ = lost;
    if (is_own) {
      host_as_standby(result);
    }
    // The standby may notice the loss later than this node, and must first stop its workers.
    const milliseconds patience = plan_.rendezvous.heartbeat_timeout + kTell;
    Connecting there = connect_within(standby.address, standby.host_port, kConnect);
    if (there.error.empty() && introduce(std::move(there.socket), patience)) {
      host_ = standby.name();
      place_ = {standby.address, standby.host_port};
      return true;
    }
    log_info(
        "{} does not host the job: {}",
        standby.name(),
        !there.error.empty()           ? there.error
        : greeting_->refused().empty() ? "no answer"
                                       : greeting_->refused());
    channel_.reset();
  }
  lost_ = lost;
  return false;
}

std::optional<Round> Remote::give_up() {
  if (guard_.signal()) {
    return std::nullopt;
  }
  const Verdict verdict = verdict_.value_or(lost_host());
  throw Error(
      verdict.exit_code == exit_code(ErrorKind::kPeerLost) ? ErrorKind::kPeerLost
                                                           : ErrorKind::kEnvironment,
      verdict.reason.empty() ? "the job ended before this node took part" : verdict.reason,
      "check the missing nodes, and the addresses and firewalls of the nodes named above");
}

std::optional<Round> Remote::next_round() {
  if (channel_ == nullptr && !connect()) {
    return give_up();
  }
  started_ = stopped_ = false;
  round_.reset();
  verdict_.reset();
  send_ready();
  while (!started_ && !guard_.signal() && !(verdict_ && verdict_->next == Verdict::Next::kEnd)) {
    if (!channel_->open()) {
      const std::string lost = moved_ ? "" : host_lost() + "; ";
      if (!follow_standby({})) {
        break;
      }
      log_info("{}{} hosts it now", lost, host_);
      stopped_ = false;
      send_ready();
    }
    guard_.loop().wait(kForEver);
    if (stopped_ && !started_ && !verdict_) {
      // The round was cancelled before this node's workers started.
      stopped_ = false;
      channel_->send(
          {{"ended", static_cast<int>(AttemptEnd::kInterrupted)},
           {"exit_code", 0},
           {"failures", json::array()}});
    } else if (verdict_ && verdict_->next == Verdict::Next::kAgain) {
      log_info("{}", verdict_->reason);
      verdict_.reset();
      send_ready();
    }
  }
  probe_.reset();
  return started_ ? round_ : give_up();
}

Interruption Remote::interruption() const {
  if (!channel_->open()) {
    return Interruption::kFailure;
  }
  return stopped_ ? why_stopped_ : Interruption::kNone;
}

void Remote::ending(const AttemptResult& result) {
  json message{
      {"ending", static_cast<int>(result.end)},
      {"exit_code", result.exit_code},
      {"signal", result.signal}};
  put_failures(result, message);
  channel_->send(message);
}

Verdict Remote::conclude(const AttemptResult& result) {
  verdict_.reset();
  json message{
      {"ended", static_cast<int>(result.end)},
      {"stuck", result.stuck},
      {"exit_code", result.exit_code}};
  if (result.step) {
    message["step"] = *result.step;
  }
  put_failures(result, message);
  channel_->send(message);
  const int seen = guard_.signals_seen();
  while (!verdict_ && channel_->open() && guard_.signals_seen() == seen) {
    guard_.loop().wait(kForEver);
  }
  if (verdict_) {
    const bool success = verdict_->next == Verdict::Next::kEnd && verdict_->exit_code == 0;
    return success && result.exit_code != 0 ? own_outcome(result) : *verdict_;
  }
  Verdict verdict = lost_host();
  const bool moved = moved_;
  if (!channel_->open() && follow_standby(result)) {
    verdict.next = Verdict::Next::kAgain;
    verdict.reason = moved ? "" : fmt::format("{}; {} hosts it now", verdict.reason, host_);
    return verdict;
  }
  if (channel_ != nullptr && channel_->open()) {  // a signal during the wait
    verdict.end = AttemptEnd::kSignalled;
    verdict.reason.clear();
    verdict.exit_code = 128 + guard_.signal().value_or(0);
  }
  if (!result.failures.empty()) {
    verdict.failures = result.failures;
    verdict.exit_code = result.exit_code;
  }
  return verdict;
}

}  // namespace

std::unique_ptr<Rendezvous> make_coordinator_client(Guard& guard, const LaunchPlan& plan) {
  return std::make_unique<Remote>(guard, plan);
}

}  // namespace lockstep::launch
