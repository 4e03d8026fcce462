// Implements the coordinator's rounds: members, failure propagation and restarts.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/json_number.h"
#include "base/log.h"
#include "launch/agent/coordinator_state.h"
#include "launch/agent/membership.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLastCallAgain{
    500};  // after the first round, the remaining nodes are already connected
constexpr milliseconds kSlowest{
    3000};  // from the loss of the coordinator until a node has stopped its workers
constexpr milliseconds kFenced{3000};  // for another coordinator to announce itself
constexpr milliseconds kQuorum{
    30000};  // for a majority of standbys, which are running already, to connect
constexpr milliseconds kWaitsUntold{3000};
constexpr size_t kMostProblems = 64, kLongestProblem = 500;

milliseconds passed_since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

}  // namespace

// Ends the current round if it has room for nodes that have joined since it began.
void Coordinator::State::take_in_latecomers() {
  for (const AgentConnection& agent : agents_) {
    if (agent.stage == AgentConnection::Stage::kReady &&
        static_cast<int>(members_.size()) < rules_.most) {
      membership_changed_ = true;
      log_info("{} joins: the workers save and restart with it", agent.node.name());
      stop_round(agent.node.name() + " joins");
      return;
    }
  }
}

int Coordinator::State::ready() const {
  return static_cast<int>(
      std::count_if(agents_.begin(), agents_.end(), [](const AgentConnection& agent) {
        return agent.stage == AgentConnection::Stage::kReady;
      }));
}

// Requires a majority of the lost host's standbys, and waits briefly for all of them, because some
// notice the loss later.
GatheringRules Coordinator::State::rules_of_standbys() const {
  GatheringRules rules = rules_;
  rules.least = std::max(rules.least, quorum(awaited_standbys_));
  rules.most = std::min(rules.most, std::max(rules.least, awaited_standbys_));
  rules.last_call = plan_.rendezvous.heartbeat_timeout + kSlowest;
  if (ready() < quorum(awaited_standbys_)) {
    rules.join_timeout = std::min(rules.join_timeout, kQuorum);
  }
  return rules;
}

void Coordinator::State::fence() {
  std::vector<HostPlace> former = replicated_state_.hosts;
  const HostPlace now = former.back();
  former.pop_back();
  std::erase_if(
      former, [&](const HostPlace& place) {  // no other coordinator listens on this endpoint
        return at_endpoint_ && place.address == address_ && place.port == bound_port(at_endpoint_);
      });
  fence_.emplace(plan_, now, replicated_state_.job.id, replicated_state_.term(), std::move(former));
}

void Coordinator::State::gather() {
  if (phase_ != Phase::kGathering || (stood_still_ && passed_since(*stood_still_) < kFenced)) {
    return;
  }
  const int count = ready();
  const GatheringRules rules = awaited_standbys_ > 0 ? rules_of_standbys() : rules_;
  if (awaited_standbys_ > 0 && !fence_ && count >= quorum(awaited_standbys_)) {
    fence();
  }
  if (count < rules.least) {
    enough_since_ = Clock::now();
  }
  switch (gathering(rules, count, passed_since(enough_since_), passed_since(gathering_since_))) {
    case Gathering::kWait:
      if (count < rules.least && passed_since(gathering_since_) >= kWaitsUntold) {
        tell_who_waits(rules, count);
      }
      return;
    case Gathering::kComplete:
      begin_round();
      return;
    case Gathering::kGiveUp:
      break;
  }
  reason_ += fmt::format(
      "{}only {} of {} nodes joined within {} s: {}",
      reason_.empty() ? "" : "; then ",
      count,
      rules.least,
      rules.join_timeout.count() / 1000,
      names_of_ready());
  end_job(AttemptEnd::kFailed, exit_code(ErrorKind::kPeerLost));
}

std::string Coordinator::State::names_of_ready() const {
  std::vector<std::string> names;
  for (const AgentConnection& agent : agents_) {
    if (agent.stage == AgentConnection::Stage::kReady) {
      names.push_back(agent.node.name());
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Logs the number of joined nodes if it has changed since the last log line.
void Coordinator::State::tell_who_waits(const GatheringRules& rules, int count) {
  if (told_ready_ != count) {
    told_ready_ = count;
    log_info(
        "{} of {} nodes have joined ({}); waiting for the rest at {} port {}, {} s in total",
        count,
        rules.least,
        names_of_ready(),
        address_,
        bound_port(listener_),
        rules.join_timeout.count() / 1000);
  }
}

void Coordinator::State::begin_round() {
  std::vector<NodeInfo> nodes;
  for (AgentConnection& agent : agents_) {
    if (agent.stage == AgentConnection::Stage::kReady &&
        static_cast<int>(nodes.size()) < rules_.most) {
      nodes.push_back(agent.node);
      agent.stage = AgentConnection::Stage::kChecking;
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
  step_.reset();
  problems_.clear();
  const int number = replicated_state_.rounds++;
  store_.emplace(address_, number == 0 ? plan_.rendezvous.store_port : 0, addresses_of_members());
  phase_ = Phase::kChecking;
  awaited_standbys_ = 0;
  replicated_state_.standbys = static_cast<int>(standbys(nodes).size());
  if (number == 0) {
    replicated_state_.job.first_world_size =
        std::accumulate(nodes.begin(), nodes.end(), 0, [](int sum, const NodeInfo& node) {
          return sum + node.workers;
        });
  }
  const json replicated_state = to_json(replicated_state_);
  tell_round(
      {{"round", number},
       {"heritage", replicated_state},
       {"nodes", list},
       {"store", {{"address", address_}, {"port", store_->port()}}}});
  membership_ = {{"roster", std::move(list)}, {"heritage", replicated_state}};
  for (AgentConnection& agent : agents_) {
    if (agent.welcome() && !agent.in_round()) {
      agent.channel->send(membership_);
    }
  }
}

// Returns the addresses from which a round's workers connect: those of their agents, or those that
// the agents announced.
std::set<std::string> Coordinator::State::addresses_of_members() const {
  std::set<std::string> addresses;
  for (const AgentConnection& agent : agents_) {
    if (agent.in_round()) {
      addresses.insert(peer_address(agent.channel->socket()));
      addresses.insert(agent.node.address);
    }
  }
  return addresses;
}

void Coordinator::State::tell_round(const json& message) {
  const Channel::Line line = Channel::line_of(message);
  for (AgentConnection& agent : agents_) {
    if (agent.in_round()) {
      agent.channel->send_line(line);
    }
  }
}

bool Coordinator::State::everybody(AgentConnection::Stage stage) const {
  return std::all_of(agents_.begin(), agents_.end(), [&](const AgentConnection& agent) {
    return !agent.in_round() || agent.stage == stage;
  });
}

void Coordinator::State::checked(AgentConnection& agent, const json& message) {
  if (phase_ != Phase::kChecking) {
    return;
  }
  for (const json& problem : message.at("problems")) {
    if (problems_.size() < kMostProblems) {
      problems_.push_back(printable(problem.get<std::string>().substr(0, kLongestProblem)));
    }
  }
  agent.stage = AgentConnection::Stage::kRunning;
  if (!everybody(AgentConnection::Stage::kRunning)) {
    return;
  }
  if (problems_.empty()) {
    phase_ = Phase::kRunning;
    tell_round({{"start", replicated_state_.rounds - 1}});
    take_in_latecomers();
    return;
  }
  reason_ = "some nodes cannot reach each other:";
  for (const std::string& problem : problems_) {
    reason_ += "\n    " + problem;
  }
  end_job(AttemptEnd::kFailed, exit_code(ErrorKind::kEnvironment));
}

void Coordinator::State::ending(AgentConnection& /*guest*/, const json& message) {
  const auto end = end_in(message.at("ending"));
  if (end == AttemptEnd::kFailed && making_room()) {
    // The worker lost a peer that had already left. The other workers need not finish saving.
    stop_round("a worker failed while the other workers made room for new nodes");
    return;
  }
  if (end == AttemptEnd::kFailed || end == AttemptEnd::kSignalled) {
    failures_.add_from(message);
    if (end_ == AttemptEnd::kSucceeded) {
      end_ = end;
      exit_code_ = integer_of<int>(message.at("exit_code"));
      signal_ = end == AttemptEnd::kSignalled ? signal_in(message.at("signal")) : 0;
    }
    stop_round("a worker failed or a signal arrived on another node");
  }
}

void Coordinator::State::ended(AgentConnection& agent, const json& message) {
  agent.stage = AgentConnection::Stage::kEnded;
  const auto end = end_in(message.at("ended"));
  stuck_ = stuck_ || message.value("stuck", false);
  if (message.contains("step")) {
    step_ = std::max(step_.value_or(-1), integer_of(message.at("step")));
  }
  made_room_ = made_room_ || (making_room() && end != AttemptEnd::kSucceeded);
  // Workers that save and exit to make room for new nodes do not end the job. They agree among
  // themselves to exit, so their node may report it before it learns the reason.
  if (end_ == AttemptEnd::kSucceeded && end == AttemptEnd::kPreempted && !making_room()) {
    end_ = end;
    exit_code_ = kExitPreempted;
  }
  if (end == AttemptEnd::kSignalled && end_ == AttemptEnd::kSignalled) {
    exit_code_ =
        integer_of<int>(message.at("exit_code"));  // only known now, because workers may have saved
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
  const bool repeats =
      end_ == AttemptEnd::kFailed && repetition_.expected(failures_.failures(), step_);
  if (repeats) {
    log_info("not restarting the workers: they would fail in the same way");
  }
  return repeats;
}

bool Coordinator::State::is_in_vain() {
  if (!replicated_state_.progress.in_vain(step_, cause_of(failures_.failures(), reason_))) {
    return false;
  }
  reason_ = "not restarting the workers: " + replicated_state_.progress.told();
  return true;
}

// When the workers of every node have ended: starts another round or ends the job.
void Coordinator::State::settle() {
  const bool some_run =
      std::any_of(agents_.begin(), agents_.end(), [](const AgentConnection& agent) {
        return agent.in_round();
      });
  if (some_run || phase_ == Phase::kOver || phase_ == Phase::kGathering) {
    return;
  }
  const bool failed = end_ == AttemptEnd::kFailed;
  const bool again = failed && replicated_state_.restarts.may_be_one_more(plan_.restarts) &&
                     !repeats() && !is_in_vain();
  const bool goes_on = !stuck_ && (failed ? again : made_room_ && end_ == AttemptEnd::kSucceeded);
  if (!goes_on) {
    end_job(end_, exit_code_);
    return;
  }
  if (failed) {
    replicated_state_.restarts.add();
  }
  phase_ = Phase::kGathering;
  gathering_since_ = enough_since_ = Clock::now();
  told_ready_.reset();
  rules_.last_call = std::min(rules_.last_call, kLastCallAgain);
  json word{{"again", 1}, {"reason", reason_}};
  failures_.put_into(word);
  for (AgentConnection& agent : agents_) {
    if (agent.stage == AgentConnection::Stage::kEnded) {
      agent.stage = AgentConnection::Stage::kIdle;
      agent.channel->send(word);
    }
  }
}

void Coordinator::State::end_job(AttemptEnd end, int code) {
  phase_ = Phase::kOver;
  last_word_ = {{"end", static_cast<int>(end)}, {"exit_code", code}, {"reason", reason_}};
  failures_.put_into(last_word_);
  for (AgentConnection& agent : agents_) {
    if (agent.welcome()) {
      agent.channel->send(last_word_);
    }
  }
}

}  // namespace lockstep::launch
