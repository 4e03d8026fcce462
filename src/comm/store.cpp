// Hosts the key-value store of a job and connects to it.
#include "comm/store.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::comm {
namespace {

constexpr int kLargestPort = 65535;

/// Returns a socket that listens on the address of `name`. Returns -1 if the address does not
/// belong to this machine (for example, a service address), or if it is a loopback address although
/// the name is not (common in /etc/hosts). c10d's server then listens on all addresses. The server
/// takes ownership of the socket.
int listen_on(const std::string& name, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return -1;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  const bool loopback =
      found->ai_family == AF_INET &&
      ntohl(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr.s_addr) >> 24 == 127;
  if (loopback && name != "localhost" && !name.starts_with("127.")) {
    return -1;
  }
  const int descriptor = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
      ::listen(descriptor, SOMAXCONN) == 0) {
    return descriptor;
  }
  ::close(descriptor);
  return -1;
}

uint16_t port_of(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(
      address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// Returns the first line of the message, which contains the reason. c10d appends a stack trace.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

HostedStore::HostedStore(int port) {
  c10d::TCPStoreOptions options;
  const int listener = listen_on("127.0.0.1", port);
  options.isServer = true;
  options.waitWorkers = false;
  try {
    if (listener < 0) {
      throw std::runtime_error(std::strerror(errno));
    }
    options.masterListenFd = listener;
    options.port = port_of(listener);
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    port_ = store->getPort();
    store_ = std::move(store);
  } catch (const std::exception& error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot open a store on port {}: {}", port, first_line(error)),
        "use another port, or 0 for a free one");
  }
}

Store join_store(const Rendezvous& rendezvous) {
  if (rendezvous.port <= 0 || rendezvous.port > kLargestPort) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("MASTER_PORT={} is not a valid port", rendezvous.port),
        "set it to a number from 1 to 65535");
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(rendezvous.port);
  options.isServer = rendezvous.rank == 0 && !rendezvous.hosted_by_agent;
  options.waitWorkers = false;
  options.timeout = rendezvous.timeout;
  if (options.isServer) {
    const int listener = listen_on(rendezvous.address, rendezvous.port);
    if (listener >= 0) {
      options.masterListenFd = listener;
    }
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(rendezvous.address, options);
  } catch (const std::exception& error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "rank {} of {} cannot reach the store at {}:{}: {}",
            rendezvous.rank,
            rendezvous.size,
            rendezvous.address,
            rendezvous.port,
            first_line(error)),
        "check MASTER_ADDR and MASTER_PORT, that rank 0 is running, and that its port is "
        "reachable");
  }
}

Store with_prefix(const std::string& prefix, const Store& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

}  // namespace lockstep::comm
