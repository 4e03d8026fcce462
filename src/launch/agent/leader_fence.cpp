// Contacts former coordinators after a failover.
#include "launch/agent/leader_fence.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/log.h"
#include "launch/agent/channel.h"
#include "launch/agent/handshake.h"
#include "launch/system/secret.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kReachFormer{500}, kFormerAnswers{1000}, kLook{50}, kBetweenFences{1000};

}  // namespace

std::string command_of(const LaunchPlan& plan) {
  std::string text;
  for (const std::string& word : plan.argv) {
    text += word + '\0';
  }
  return hmac_hex("command", text);
}

LeaderFence::LeaderFence(
    const LaunchPlan& plan, HostPlace now, std::string job, int term, std::vector<HostPlace> former)
    : plan_(plan),
      now_(std::move(now)),
      job_(std::move(job)),
      term_(term),
      former_(std::move(former)) {
  thread_ = std::thread([this] { run(); });
}

LeaderFence::~LeaderFence() {
  leaving_ = true;
  thread_.join();
}

void LeaderFence::run() {
  while (!leaving_) {
    for (const HostPlace& former : former_) {
      try {
        if (!leaving_) {
          tell(former);
        }
      } catch (const std::exception& error) {
        log_debug("{} port {}: {}", former.address, former.port, error.what());
      }
    }
    const auto begin = Clock::now();
    while (!leaving_ && Clock::now() - begin < kBetweenFences) {
      std::this_thread::sleep_for(kLook);
    }
  }
}

void LeaderFence::tell(const HostPlace& former) {
  Connecting connecting = connect_within(former.address, former.port, kReachFormer);
  if (!connecting.error.empty()) {
    return;
  }
  NodeInfo self;
  self.host = own_host_name();
  self.address = now_.address;
  self.pid = ::getpid();
  self.probe_port = now_.port;
  Greeting greeting(plan_.rendezvous, plan_.run_id, self);
  EventLoop loop;
  bool told = false;
  Channel channel(
      loop,
      std::move(connecting.socket),
      [&](const nlohmann::json& message) {
        if (!greeting.welcome()) {
          greeting.take(message, channel);
        }
        if (greeting.welcome() && !told) {
          told = true;
          channel.send(
              {{"moved", to_json(now_)},
               {"term", term_},
               {"job", job_},
               {"command", command_of(plan_)}});
        }
      },
      [](const std::string&) {});
  const auto begin = Clock::now();
  while (!leaving_ && channel.open() && greeting.refused().empty() &&
         Clock::now() - begin < kFormerAnswers) {
    loop.wait(kLook);
  }
}

}  // namespace lockstep::launch
