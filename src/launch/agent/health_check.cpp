#include "launch/agent/health_check.h"

#include <string_view>

#include <sys/socket.h>

namespace lockstep::launch {
namespace {

constexpr size_t kMostProbes = 64;
constexpr std::string_view kAnswer =
    "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\nConnection: "
    "close\r\n\r\nalive\n";

}  // namespace

HealthCheck::HealthCheck(EventLoop& loop, const std::string& address, int port)
    : loop_(loop),
      listener_(listen_on(address, port)),
      port_(bound_port(listener_)) {
  loop_.watch(listener_.get(), [this] { accept(); });
}

HealthCheck::~HealthCheck() {
  loop_.forget(listener_.get());
  for (const auto& [descriptor, socket] : guests_) {
    loop_.forget(descriptor);
  }
}

void HealthCheck::accept() {
  Socket guest(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!guest) {
    return;
  }
  if (guests_.size() >= kMostProbes) {  // the one that has said nothing for longest makes room
    loop_.forget(guests_.begin()->first);
    guests_.erase(guests_.begin());
  }
  const int descriptor = guest.get();
  guests_[descriptor] = std::move(guest);
  loop_.watch(descriptor, [this, descriptor] { answer(descriptor); });
}

void HealthCheck::answer(int guest) {
  char request[4096];
  // What was asked does not matter; read, so that closing does not reset the connection.
  if (::recv(guest, request, sizeof request, MSG_DONTWAIT) > 0) {
    [[maybe_unused]] const auto sent =
        ::send(guest, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  loop_.forget(guest);
  guests_.erase(guest);
}

}  // namespace lockstep::launch
