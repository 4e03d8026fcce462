// Tests of the agent's side of a greeting, with hand-written coordinators of this and another user.
#include "launch/agent/handshake.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/agent/leader_fence.h"
#include "launch/other_user.h"

namespace lockstep::launch {
namespace handshake_test {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::kNobody;

const std::string kSecret = "0123456789abcdef";
using Lines = std::vector<std::string>;
const std::string kWelcome = R"({"welcome": 1, "proof": ""})";

std::string challenge(bool secret = false) {
  return json{{"lockstep", kProtocol}, {"challenge", "c"}, {"secret", secret}}.dump();
}

// Sends lines to its first client and records the answer until the client disconnects.
class FakeHost {
 public:
  explicit FakeHost(const Lines& lines, uid_t user = ::geteuid()) {
    std::promise<int> port;
    thread_ = std::thread([this, lines, user, &port] {
      testing::own_sockets_as(user);
      const Socket listener = listen_on("127.0.0.1", 0);
      port.set_value(bound_port(listener));
      pollfd coming{listener.get(), POLLIN, 0};
      ::poll(&coming, 1, 20000);
      const Socket client(::accept(listener.get(), nullptr, nullptr));
      for (std::string line : lines) {
        line += '\n';
        ::send(client.get(), line.data(), line.size(), MSG_NOSIGNAL);
      }
      char buffer[4096];
      ssize_t size = 0;
      while ((size = ::recv(client.get(), buffer, sizeof buffer, 0)) > 0) {
        received_.append(buffer, static_cast<size_t>(size));
      }
    });
    port_ = port.get_future().get();
  }
  ~FakeHost() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  int port() const { return port_; }
  /// Blocks until the client has disconnected.
  const std::string& received() {
    thread_.join();
    return received_;
  }

 private:
  std::thread thread_;
  std::string received_;
  int port_ = 0;
};

RendezvousPoint with_secret(const std::string& secret) {
  RendezvousPoint rendezvous;
  rendezvous.secret = secret;
  return rendezvous;
}

// Connects as an agent until it is accepted or refused.
Greeting greet(const FakeHost& host, const RendezvousPoint& rendezvous) {
  NodeInfo self;
  self.host = "n1";
  self.address = "127.0.0.1";
  self.probe_port = 4;
  Greeting greeting(rendezvous, "job", self);
  EventLoop loop;
  Channel channel(
      loop,
      connect_within("127.0.0.1", host.port(), std::chrono::seconds(10)).socket,
      [&](const json& message) { greeting.take(message, channel); },
      [](const std::string&) {});
  while (channel.open() && !greeting.welcome() && greeting.refused().empty()) {
    loop.wait(std::chrono::seconds(20));
  }
  return greeting;
}

TEST(Handshake, NothingProvesAnEmptySecret) {
  const Handshake said{"c", "n", "job", "{}"};
  EXPECT_EQ(said.proof("", "host"), "");
  for (const std::string& proof : {said.proof("", "host"), said.proof(kSecret, "host")}) {
    EXPECT_FALSE(said.is_proved("", "host", proof));
  }
  EXPECT_TRUE(said.is_proved(kSecret, "host", said.proof(kSecret, "host")));
  EXPECT_FALSE(said.is_proved(kSecret, "host", said.proof(kSecret, "agent")));
}

TEST(Handshake, AnAgentWithoutASecretJoinsAHostOfItsUser) {
  FakeHost host(Lines{challenge(), kWelcome});
  EXPECT_TRUE(greet(host, {}).welcome());
  EXPECT_THAT(host.received(), HasSubstr("join"));
}

TEST(Handshake, AnAgentWithASecretJoinsNoHostWithoutAProof) {
  FakeHost host(Lines{challenge(/*secret=*/true), kWelcome});
  const Greeting greeting = greet(host, with_secret(kSecret));
  EXPECT_FALSE(greeting.welcome());
  EXPECT_THAT(greeting.refused(), HasSubstr("does not know the secret"));
}

TEST(Handshake, AWelcomeWithoutAChallengeIsRefused) {
  FakeHost host(Lines{kWelcome});
  const Greeting greeting = greet(host, {});
  EXPECT_FALSE(greeting.welcome());
  EXPECT_THAT(greeting.refused(), HasSubstr("no challenge"));
}

class OtherUser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = testing::no_other_user(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }
};

TEST_F(OtherUser, AHostWithoutASecretHearsNothing) {
  for (const Lines& lines :
       {Lines{challenge(), kWelcome}, Lines{kWelcome}, Lines{R"({"refused": "no"})"}}) {
    FakeHost host(lines, kNobody);
    const Greeting greeting = greet(host, {});
    EXPECT_TRUE(greeting.foreign_host());
    EXPECT_FALSE(greeting.welcome());
    EXPECT_THAT(greeting.refused(), HasSubstr(fmt::format("127.0.0.1 port {}", host.port())));
    EXPECT_THAT(greeting.refused(), HasSubstr("belongs to " + user_name(kNobody)));
    EXPECT_EQ(host.received(), "");
  }
}

TEST_F(OtherUser, MayHostWhereTheUserWantsNoCheck) {
  RendezvousPoint rendezvous;
  rendezvous.insecure = true;
  const FakeHost host(Lines{challenge(), kWelcome}, kNobody);
  EXPECT_TRUE(greet(host, rendezvous).welcome());
}

// The port of a lost coordinator may belong to another user by now.
TEST_F(OtherUser, HearsNothingFromASuccessorOfTheCoordinator) {
  FakeHost host(Lines{challenge(), kWelcome}, kNobody);
  LaunchPlan plan;
  plan.run_id = "job";
  const LeaderFence fence(plan, {"127.0.0.1", 4}, "job", 1, {{"127.0.0.1", host.port()}});
  EXPECT_EQ(host.received(), "");
}

}  // namespace handshake_test
}  // namespace lockstep::launch
