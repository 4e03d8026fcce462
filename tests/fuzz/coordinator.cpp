// Fuzz targets for the coordinator on a real socket. Unauthenticated clients receive only the
// challenge and a refusal and never join a round. An authenticated member that sends arbitrary
// bytes must not crash the coordinator.
#include "launch/agent/coordinator.h"

#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>

#include "base/json.h"
#include "fuzz/helpers.h"
#include "launch/agent/handshake.h"

namespace lockstep::fuzz {
namespace {

using launch::Channel;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kSecret = "0123456789abcdef";

struct Host {
  explicit Host(int nodes) {
    launch::LaunchPlan plan;
    plan.min_nodes = plan.max_nodes = nodes;
    plan.restarts.most = 3;
    plan.run_id = "job";
    plan.rendezvous.secret = kSecret;
    plan.rendezvous.heartbeat_timeout = std::chrono::hours(1000);
    plan.rendezvous.join_timeout = std::chrono::hours(1000);
    launch::Socket listener = launch::listen_on("127.0.0.1", 0);
    port = launch::bound_port(listener);
    coordinator.emplace(plan, std::move(listener), "127.0.0.1");
  }
  int port = 0;
  std::optional<launch::Coordinator> coordinator;
};

/// Agent that knows the secret.
class Member {
 public:
  explicit Member(int port)
      : channel_(
            loop_,
            connected(port),
            [this](const json& message) { take(message); },
            [](const std::string&) {}) {
    self_.host = "n1";
    self_.address = "127.0.0.1";
    self_.probe_port = 4;
    self_.probe_token = "token";
    launch::RendezvousPoint rendezvous;
    rendezvous.secret = kSecret;
    greeting_.emplace(rendezvous, "job", self_);
    const auto begin = Clock::now();
    while (!greeting_->welcome() && Clock::now() - begin < seconds(20)) {
      loop_.wait(milliseconds(100));
    }
    check(greeting_->welcome(), "a client that knows the secret joins");
  }
  void say(const std::string& line) {
    const json message = json::parse(line, nullptr, /*allow_exceptions=*/false);
    // Send invalid JSON as a string, because the channel seals and parses complete JSON lines.
    channel_.send(message.is_discarded() ? json{{"beat", "x"}} : message);
  }
  /// Handles pending messages without blocking.
  void listen() { loop_.wait(milliseconds(0)); }
  bool has_round() const { return has_round_; }
  bool is_open() const { return channel_.open(); }
  Channel& channel() { return channel_; }
  launch::EventLoop& loop() { return loop_; }

 private:
  static launch::Socket connected(int port) {
    return launch::connect_within("127.0.0.1", port, seconds(10)).socket;
  }
  void take(const json& message) {
    if (!greeting_->welcome()) {
      greeting_->take(message, channel_);
    }
    has_round_ = has_round_ || message.contains("round");
  }

  launch::EventLoop loop_;
  Channel channel_;
  launch::NodeInfo self_;
  std::optional<launch::Greeting> greeting_;
  bool has_round_ = false;
};

/// Reads until the other end closes the connection.
std::string heard_from(const launch::Socket& socket) {
  std::string text;
  std::array<char, 4096> part{};
  while (true) {
    pollfd waiting{socket.get(), POLLIN, 0};
    check(::poll(&waiting, 1, 20'000) == 1, "the connection of a finished client is closed");
    const ssize_t got = ::recv(socket.get(), part.data(), part.size(), 0);
    if (got <= 0) {
      return text;
    }
    text.append(part.data(), static_cast<size_t>(got));
  }
}

}  // namespace

/// Each line starts with the number of its sender, one of up to three unauthenticated clients. The
/// job has two nodes; one of them waits for the lifetime of the process.
void read_strangers(Bytes bytes) {
  static Host host(2);
  static Member member(host.port);
  static const bool is_ready = [] {
    member.say(R"({"ready":1})");
    return true;
  }();
  (void)is_ready;
  std::array<launch::Socket, 3> strangers;
  for (const std::string& line : lines_of(bytes)) {
    if (line.empty()) {
      continue;
    }
    launch::Socket& stranger = strangers.at(static_cast<uint8_t>(line.front()) % strangers.size());
    if (!stranger) {
      stranger = launch::connect_within("127.0.0.1", host.port, seconds(10)).socket;
      check(static_cast<bool>(stranger), "an unauthenticated client can connect");
    }
    const std::string said = line.substr(1) + "\n";
    (void)::send(stranger.get(), said.data(), said.size(), MSG_NOSIGNAL);
  }
  for (const launch::Socket& stranger : strangers) {
    if (!stranger) {
      continue;
    }
    (void)::shutdown(stranger.get(), SHUT_WR);
    for (const std::string& line : lines_of(heard_from(stranger))) {
      const json told = json::parse(line, nullptr, /*allow_exceptions=*/false);
      check(
          told.is_object() && (told.contains("challenge") || told.contains("refused")) &&
              !told.contains("nodes") && !told.contains("welcome"),
          "an unauthenticated client receives only the challenge or a refusal");
    }
  }
  member.listen();
  check(member.is_open() && !member.has_round(), "no round contains an unauthenticated client");
}

/// Each line is a message of a member after it has joined.
void read_member(Bytes bytes) {
  const Host host(1);
  Member member(host.port);
  for (const std::string& line : lines_of(bytes)) {
    member.say(line);
    member.listen();
  }
  (void)::shutdown(member.channel().socket().get(), SHUT_WR);
  const auto begin = Clock::now();
  while (member.is_open()) {
    member.loop().wait(milliseconds(50));
    check(Clock::now() - begin < seconds(20), "the connection of a finished member is closed");
  }
}

}  // namespace lockstep::fuzz
