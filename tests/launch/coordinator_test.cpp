// Tests of the coordinator's protocol with hand-written peers on real sockets, with and without the
// secret.
#include "launch/agent/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "launch/agent/channel.h"
#include "launch/agent/handshake.h"
#include "launch/agent/leader_fence.h"
#include "launch/agent/membership.h"
#include "launch/workers/attempt.h"

namespace lockstep::launch {
namespace coordinator_test {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const std::string kSecret = "0123456789abcdef";

// One end of a connection to the coordinator. It sends only the messages that the test specifies.
class Caller {
 public:
  explicit Caller(int port)
      : channel_(
            loop_,
            connect_within("127.0.0.1", port, std::chrono::seconds(10)).socket,
            [this](const json& message) { take(message); },
            [](const std::string&) {}) {}

  void say(const json& message) { channel_.send(message); }
  // Sends a line to the socket directly, bypassing the seal.
  void say_raw(const std::string& line) {
    ::send(channel_.socket().get(), line.data(), line.size(), MSG_NOSIGNAL);
  }
  /// Returns true if the condition becomes true within `limit`.
  template <class Condition>
  bool await(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto begin = Clock::now();
    while (!condition() && Clock::now() - begin < limit) {
      loop_.wait(std::chrono::milliseconds(20));
      if (beating_) {
        channel_.send({{"beat", 1}});
      }
    }
    return condition();
  }
  bool hears(const std::string& key) {
    return await([&] { return heard_.contains(key); });
  }
  bool is_cut_off() {
    return await([&] { return !channel_.open(); });
  }
  const json& heard(const std::string& key) const { return heard_.at(key); }
  std::vector<std::string> all_heard() const { return order_; }

  void greet(const std::string& secret = kSecret) {
    ASSERT_TRUE(hears("challenge"));
    NodeInfo node;
    node.host = "n1";
    node.address = "127.0.0.1";
    node.probe_port = 4;
    node.probe_token = "token";
    said_ = {heard("challenge").at("challenge"), "nonce", "job", introduction(to_json(node))};
    say(
        {{"join", "job"},
         {"nonce", "nonce"},
         {"proof", said_.proof(secret, "agent")},
         {"node", to_json(node)}});
  }
  void join() {
    greet();
    ASSERT_TRUE(hears("welcome"));
    beating_ = true;
  }
  void run() {
    say({{"ready", 1}});
    ASSERT_TRUE(hears("round"));
    say({{"checked", 0}, {"problems", json::array()}});
  }
  LineSeal seal() const { return LineSeal(said_.key(kSecret, "agent")); }

 private:
  void take(const json& message) {
    for (const auto& [key, value] : message.items()) {
      heard_[key] = message;
    }
    order_.push_back(message.begin().key());
    if (message.contains("welcome")) {
      channel_.seal(said_.key(kSecret, "agent"), said_.key(kSecret, "host"));
    }
  }

  EventLoop loop_;
  Channel channel_;
  Handshake said_;
  json heard_ = json::object();
  std::vector<std::string> order_;
  bool beating_ = false;
};

struct Host {
  explicit Host(int nodes, int restarts = 0) {
    LaunchPlan plan;
    plan.min_nodes = plan.max_nodes = nodes;
    plan.restarts.most = restarts;
    plan.run_id = "job";
    plan.rendezvous.secret = kSecret;
    plan.rendezvous.heartbeat_timeout = std::chrono::seconds(60);
    Socket listener = listen_on("127.0.0.1", 0);
    port = bound_port(listener);
    coordinator.emplace(plan, std::move(listener), "127.0.0.1");
  }
  int port = 0;
  std::optional<Coordinator> coordinator;
};

const std::vector<json> kWords{
    {{"ready", 1}},
    {{"checked", 0}, {"problems", {"a problem"}}},
    {{"ending", 1}, {"exit_code", 3}, {"signal", 9}, {"failures", {"{}"}}},
    {{"ended", 1}, {"exit_code", 3}, {"failures", {"{}"}}},
    {{"beat", 1}},
    {{"moved", {{"address", "10.0.0.9"}, {"port", 4}}}, {"term", 5}, {"job", ""}, {"command", ""}},
    {{"nothing", 1}},
    json::array({"join"})};

TEST(Coordinator, HearsNothingButAGreetingBeforeTheProof) {
  const Host host(1);
  for (const json& word : kWords) {
    Caller stranger(host.port);
    ASSERT_TRUE(stranger.hears("challenge"));
    stranger.say(word);
    EXPECT_TRUE(stranger.is_cut_off()) << word;
    EXPECT_THAT(stranger.all_heard(), ElementsAre("challenge")) << word;
  }
}

TEST(Coordinator, CutsOffWhoIsRefusedAtItsNextWord) {
  const Host host(1);
  std::vector<json> words = kWords;
  words.push_back({{"join", "job"}});
  for (const json& word : words) {
    Caller stranger(host.port);
    stranger.greet("another secret, of some length");
    ASSERT_TRUE(stranger.hears("refused"));
    stranger.say(word);
    EXPECT_TRUE(stranger.is_cut_off()) << word;
    EXPECT_THAT(stranger.all_heard(), ElementsAre("challenge", "refused")) << word;
  }
}

TEST(Coordinator, CutsOffWhoIsRefusedAndSaysNothing) {
  const Host host(1);
  Caller stranger(host.port);
  stranger.greet("another secret, of some length");
  ASSERT_TRUE(stranger.hears("refused"));
  EXPECT_TRUE(stranger.is_cut_off());
}

TEST(Coordinator, ARunningJobGoesOnWhateverStrangersSay) {
  const Host host(1);
  Caller agent(host.port);
  agent.join();
  agent.run();
  ASSERT_TRUE(agent.hears("start"));
  for (const json& word : kWords) {
    Caller refused(host.port);
    refused.greet("another secret, of some length");
    ASSERT_TRUE(refused.hears("refused"));
    refused.say(word);
    EXPECT_TRUE(refused.is_cut_off());
  }
  agent.await([] { return false; }, std::chrono::milliseconds(500));
  EXPECT_THAT(agent.all_heard(), ::testing::Not(Contains("stop")));
  agent.say({{"ended", 0}, {"exit_code", 0}, {"failures", json::array()}});
  ASSERT_TRUE(agent.hears("end"));
  EXPECT_EQ(agent.heard("end").at("exit_code"), 0);
}

TEST(Coordinator, AnAgentOutsideARoundEndsNothing) {
  const Host host(2);
  Caller first(host.port);
  first.join();
  first.say({{"ready", 1}});
  for (const json& word : {kWords[1], kWords[2], kWords[3], kWords[5]}) {
    Caller idle(host.port);
    idle.join();
    idle.say(word);
    EXPECT_TRUE(idle.is_cut_off()) << word;
  }
  Caller second(host.port);
  second.join();
  second.run();
  ASSERT_TRUE(first.hears("round"));
  first.say({{"checked", 0}, {"problems", json::array()}});
  EXPECT_TRUE(first.hears("start"));
  EXPECT_TRUE(second.hears("start"));
}

// The link is cut between agents only: the other side stops its workers, and all workers agree to
// save and exit.
TEST(Coordinator, AJobWhoseWorkersLeftForALostNodeGoesOn) {
  const Host host(2, /*restarts=*/1);
  Caller stays(host.port);
  std::optional<Caller> lost(std::in_place, host.port);
  stays.join();
  stays.say({{"ready", 1}});
  lost->join();
  lost->run();
  ASSERT_TRUE(stays.hears("round"));
  stays.say({{"checked", 0}, {"problems", json::array()}});
  ASSERT_TRUE(lost->hears("start"));
  ASSERT_TRUE(stays.hears("start"));
  stays.say(
      {{"ended", static_cast<int>(AttemptEnd::kPreempted)},
       {"exit_code", 0},
       {"failures", json::array()}});
  stays.await([] { return false; }, std::chrono::milliseconds(300));
  lost.reset();
  ASSERT_TRUE(stays.hears("again"));
  EXPECT_THAT(stays.heard("again").at("reason"), HasSubstr("was lost: the connection was closed"));
  EXPECT_THAT(stays.all_heard(), ::testing::Not(Contains("end")));
}

// A man in the middle can let the greeting pass and nothing more.
TEST(Coordinator, TakesOnlySealedLinesAfterTheGreeting) {
  const std::string ready = R"({"ready":1})";
  const auto is_refused = [&](const auto& line) {
    const Host host(1);
    Caller agent(host.port);
    agent.greet();
    ASSERT_TRUE(agent.hears("welcome"));
    agent.say_raw(line(agent.seal()) + "\n");
    EXPECT_TRUE(agent.is_cut_off());
    EXPECT_THAT(agent.all_heard(), ::testing::Not(Contains("job")));
  };
  is_refused([&](LineSeal) { return ready; });
  is_refused([&](LineSeal) { return LineSeal("another key").seal(ready); });
  is_refused([&](LineSeal seal) {
    std::string line = seal.seal(ready);
    line.back() = ' ';
    return line;
  });
  is_refused([&](LineSeal seal) {
    seal.seal(ready);
    return seal.seal(ready);  // one line was dropped
  });
  is_refused([&](LineSeal seal) {
    const std::string beat = seal.seal(R"({"beat":1})");
    return beat + "\n" + beat;
  });
}

json moved(int term, const std::string& command) {
  return {
      {"moved", {{"address", "127.0.0.9"}, {"port", 4711}}},
      {"term", term},
      {"job", "another"},
      {"command", command}};
}

TEST(Coordinator, SendsItsAgentsToAHostThatFollowedIt) {
  const Host host(2);
  Caller agent(host.port), standby(host.port);
  agent.join();
  agent.say({{"ready", 1}});
  standby.join();
  standby.say(moved(1, command_of({})));
  ASSERT_TRUE(agent.hears("moved"));
  EXPECT_EQ(agent.heard("moved").at("moved").at("port"), 4711);
  Caller late(host.port);
  late.join();
  late.say({{"ready", 1}});
  EXPECT_TRUE(late.hears("moved"));
}

TEST(Coordinator, HostsOnWhereAnotherJobOrAnEarlierHostSaysThatItDoes) {
  const Host host(1);
  Caller agent(host.port);
  agent.join();
  agent.run();
  ASSERT_TRUE(agent.hears("start"));
  for (const json& word : {moved(0, command_of({})), moved(1, "another")}) {
    Caller other(host.port);
    other.join();
    other.say(word);
    EXPECT_TRUE(other.is_cut_off()) << word;
  }
  agent.await([] { return false; }, std::chrono::milliseconds(300));
  EXPECT_THAT(agent.all_heard(), ::testing::Not(Contains("moved")));
}

TEST(Coordinator, StrangersInNumbersDoNotLockAgentsOut) {
  const Host host(1);
  std::vector<Connecting> strangers;
  for (int i = 0; i < 1500; ++i) {
    strangers.push_back(connect_within("127.0.0.1", host.port, std::chrono::seconds(10)));
    if (!strangers.back().error.empty() || !strangers.back().socket) {
      strangers.pop_back();
      break;  // this process is out of file descriptors
    }
  }
  strangers.resize(strangers.size() - 50);
  Caller agent(host.port);
  agent.join();
  agent.say({{"ready", 1}});
  EXPECT_TRUE(agent.hears("round"));
}

}  // namespace coordinator_test
}  // namespace lockstep::launch
