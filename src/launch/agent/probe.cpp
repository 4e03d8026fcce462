// Checks connections between nodes.
#include "launch/agent/probe.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/format.h"
#include "launch/system/secret.h"
#include "launch/system/store_protocol.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kSignOfLife = 0x4c6f636b;  // an arbitrary number that is echoed

// Probe of one node.
struct Attempt {
  const NodeInfo* node;
  Socket socket;
  std::string answer, problem;
  bool connected = false, done = false;
};

void advance(Attempt& attempt) {
  if (!attempt.connected) {
    attempt.problem = connection_error(attempt.socket);
    attempt.connected = attempt.done = true;
    if (!attempt.problem.empty()) {
      return;
    }
    attempt.done = false;
  }
  char buffer[256];
  const ssize_t size = ::recv(attempt.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (size > 0) {
    attempt.answer.append(buffer, static_cast<size_t>(size));
  }
  if (size <= 0 || attempt.answer.size() >= attempt.node->probe_token.size()) {
    attempt.done = true;
    if (attempt.answer != attempt.node->probe_token) {
      attempt.problem =
          size < 0 ? std::strerror(errno) : "another program or machine answers at this address";
    }
  }
}

void wait_for(std::vector<Attempt>& attempts, Clock::time_point deadline) {
  while (true) {
    std::vector<pollfd> polls;
    std::vector<Attempt*> waiting;
    for (Attempt& attempt : attempts) {
      if (!attempt.done) {
        const short events = attempt.connected ? POLLIN : POLLOUT;
        polls.push_back({attempt.socket.get(), events, 0});
        waiting.push_back(&attempt);
      }
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (waiting.empty() || left <= 0 ||
        ::poll(polls.data(), polls.size(), static_cast<int>(left)) <= 0) {
      return;
    }
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) {
        advance(*waiting[i]);
      }
    }
  }
}

}  // namespace

ProbeListener::ProbeListener(const std::string& address)
    : listener_(listen_on(address, 0)),
      token_(random_hex()) {
  port_ = bound_port(listener_);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { serve(); });
}

ProbeListener::~ProbeListener() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof one);
  thread_.join();
  ::close(stop_);
}

void ProbeListener::serve() {
  while (true) {
    pollfd polls[2] = {{listener_.get(), POLLIN, 0}, {stop_, POLLIN, 0}};
    ::poll(polls, 2, -1);
    if (polls[1].revents != 0) {
      return;
    }
    const Socket agent(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!agent && (errno == EMFILE || errno == ENFILE)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // other descriptors may be freed
    }
    if (agent) {
      [[maybe_unused]] const auto sent =
          ::send(agent.get(), token_.data(), token_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
}

std::vector<std::string> probe_nodes(
    const NodeInfo& self, const std::vector<NodeInfo>& others, std::chrono::milliseconds timeout) {
  std::vector<Attempt> attempts;
  for (const NodeInfo& node : others) {
    Connecting connecting = begin_connect(node.address, node.probe_port);
    Attempt attempt;
    attempt.node = &node;
    attempt.socket = std::move(connecting.socket);
    attempt.problem = connecting.error;
    attempt.done = !connecting.error.empty();
    attempts.push_back(std::move(attempt));
  }
  wait_for(attempts, Clock::now() + timeout);
  std::vector<std::string> problems;
  for (const Attempt& attempt : attempts) {
    if (attempt.done && attempt.problem.empty()) {
      continue;
    }
    const NodeInfo& node = *attempt.node;
    problems.push_back(fmt::format(
        "{} -> {} port {}, from {}: {}",
        self.name(),
        node.name(),
        node.probe_port,
        route_to(node.address),
        attempt.done ? attempt.problem
                     : fmt::format("no answer within {} s", timeout.count() / 1000)));
  }
  return problems;
}

std::string probe_store(
    const NodeInfo& self, const std::string& address, int port, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  Connecting store = connect_within(address, port, timeout);
  std::string problem = store.error, answer;
  if (problem.empty()) {
    const std::string question = StoreProtocol::greeting_and_ping(kSignOfLife);
    ::send(store.socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
  }
  while (problem.empty() && answer.size() < sizeof kSignOfLife) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd poll_one{store.socket.get(), POLLIN, 0};
    char buffer[sizeof kSignOfLife];
    if (left <= 0 || ::poll(&poll_one, 1, static_cast<int>(left)) <= 0) {
      problem = fmt::format("no answer within {} s", timeout.count() / 1000);
      break;
    }
    const ssize_t size =
        ::recv(store.socket.get(), buffer, sizeof kSignOfLife - answer.size(), MSG_DONTWAIT);
    if (size > 0) {
      answer.append(buffer, static_cast<size_t>(size));
    } else {
      problem =
          "connection closed by the store: this node connects from another address than it used in "
          "the rendezvous";
    }
  }
  return problem.empty() ? ""
                         : fmt::format(
                               "{} -> store of the job at {} port {}, from {}: {}",
                               self.name(),
                               address,
                               port,
                               route_to(address),
                               problem);
}

}  // namespace lockstep::launch
