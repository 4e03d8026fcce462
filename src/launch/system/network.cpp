// Implements address resolution and sockets, and finds the users of connections.
#include "launch/system/network.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::launch {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const std::string& name, int port, int flags, std::string& error) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int code = ::getaddrinfo(
      name.empty() ? nullptr : name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    error = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    return nullptr;
  }
  return Addresses(found);
}

// Returns 10.0.0.1 for ::ffff:10.0.0.1.
std::string without_mapping(const std::string& address) {
  return address.starts_with("::ffff:") ? address.substr(7) : address;
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  if (::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return without_mapping(text);
}

int port_of(const sockaddr_storage& address) {
  return ntohs(
      address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// Returns the name and numeric address of every interface.
std::vector<std::pair<std::string, std::string>> own_interfaces() {
  std::vector<std::pair<std::string, std::string>> result;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return result;
  }
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr != nullptr &&
        (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6)) {
      const socklen_t size =
          at->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      result.emplace_back(at->ifa_name, numeric(at->ifa_addr, size));
    }
  }
  ::freeifaddrs(list);
  return result;
}

// Parses the address and port of one end of a connection in /proc/net/tcp: "0100007F:1F90", in host
// byte order.
std::pair<std::string, int> end_of_connection(const std::string& text) {
  const size_t digits = text.find(':');
  if (digits != 8 && digits != 32) {
    return {};
  }
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < digits / 8; ++i) {
    words[i] = static_cast<uint32_t>(std::strtoul(text.substr(8 * i, 8).c_str(), nullptr, 16));
  }
  char name[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(digits == 8 ? AF_INET : AF_INET6, words.data(), name, sizeof name);
  return {without_mapping(name), static_cast<int>(std::strtol(&text[digits + 1], nullptr, 16))};
}

void put_end(const sockaddr_storage& end, __be32 (&address)[4], __be16& port) {
  if (end.ss_family == AF_INET) {
    const auto& of = reinterpret_cast<const sockaddr_in&>(end);
    address[0] = of.sin_addr.s_addr;
    port = of.sin_port;
  } else {
    const auto& of = reinterpret_cast<const sockaddr_in6&>(end);
    std::memcpy(address, &of.sin6_addr, sizeof address);
    port = of.sin6_port;
  }
}

// Asks the kernel (sock_diag) which user has the end `from` of a connection to `to`. With thousands
// of connections, reading /proc instead would take milliseconds. Returns nullopt if the kernel does
// not answer.
std::optional<unsigned> asked_user(const sockaddr_storage& from, const sockaddr_storage& to) {
  const Socket asking(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr header;
    inet_diag_req_v2 question;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.question.sdiag_family = static_cast<__u8>(from.ss_family);
  request.question.sdiag_protocol = IPPROTO_TCP;
  inet_diag_sockid& id = request.question.id;
  put_end(from, id.idiag_src, id.idiag_sport);
  put_end(to, id.idiag_dst, id.idiag_dport);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const timeval patience{1, 0};
  ::setsockopt(asking.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  alignas(nlmsghdr) std::array<char, 8192> answer{};
  if (::send(asking.get(), &request, sizeof request, 0) < 0 ||
      ::recv(asking.get(), answer.data(), answer.size(), 0) <
          static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) {
    return std::nullopt;
  }
  nlmsghdr header{};
  inet_diag_msg said{};
  std::memcpy(&header, answer.data(), sizeof header);
  std::memcpy(&said, answer.data() + NLMSG_HDRLEN, sizeof said);
  // Ignore a listening socket with the same address, and sockets without a process, which have no
  // inode.
  const bool is_it = header.nlmsg_type == SOCK_DIAG_BY_FAMILY && said.idiag_inode != 0 &&
                     said.id.idiag_sport == id.idiag_sport && said.id.idiag_dport == id.idiag_dport;
  return is_it ? std::optional<unsigned>(said.idiag_uid) : std::nullopt;
}

// Returns the inodes of the sockets that listen on `port`. The lines of /proc/net/tcp have the form
// "sl local remote st ... inode".
std::set<std::string> listening_inodes(int port) {
  std::set<std::string> result;
  const std::string suffix = fmt::format(":{:04X}", port);
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      if (state == "0A" && local.ends_with(suffix)) {
        result.insert("socket:[" + inode + "]");
      }
    }
  }
  return result;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    descriptor_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

int Socket::release() {
  return std::exchange(descriptor_, -1);
}

Socket listen_on(const std::string& address, int port) {
  std::string problem;
  const Addresses found = look_up(address, port, AI_PASSIVE, problem);
  if (found == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot resolve '{}': {}", address, problem),
        "check the name, /etc/hosts and DNS");
  }
  int reason = 0;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    // The socket is non-blocking because a client may disconnect before it is accepted.
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.get(), 4096) == 0) {
      return socket;
    }
    reason = errno;
  }
  if (reason == EADDRINUSE) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("port {} of {} is in use by {}", port, address, port_holder(port)),
        "choose another port, or 0 for a free one");
  }
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format("cannot listen on {} port {}: {}", address, port, std::strerror(reason)),
      "use an address of this machine (`ip address` lists them)");
}

int bound_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return port_of(address);
}

std::string port_holder(int port) {
  const std::set<std::string> inodes = listening_inodes(port);
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    std::error_code hidden;
    for (const auto& entry : std::filesystem::directory_iterator(process.path() / "fd", hidden)) {
      if (inodes.contains(std::filesystem::read_symlink(entry.path(), ignored).string())) {
        std::ifstream name(process.path() / "comm");
        std::string text;
        std::getline(name, text);
        return fmt::format("PID {} ({})", pid, text);
      }
    }
  }
  return "another process";
}

Connecting begin_connect(const std::string& address, int port) {
  Connecting result;
  const Addresses found = look_up(address, port, 0, result.error);
  if (found == nullptr) {
    result.error = fmt::format("cannot resolve '{}': {}", address, result.error);
    return result;
  }
  result.socket = Socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(result.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(result.socket.get(), found->ai_addr, found->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    result.error = std::strerror(errno);
  }
  return result;
}

std::string connection_error(const Socket& socket) {
  int code = 0;
  socklen_t size = sizeof code;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
  return code == 0 ? "" : std::strerror(code);
}

Connecting connect_within(const std::string& address, int port, std::chrono::milliseconds timeout) {
  Connecting result = begin_connect(address, port);
  if (result.error.empty()) {
    pollfd poll{result.socket.get(), POLLOUT, 0};
    const bool ready = ::poll(&poll, 1, static_cast<int>(timeout.count())) > 0;
    result.error = ready ? connection_error(result.socket) : "no answer";
  }
  return result;
}

std::string own_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return numeric(reinterpret_cast<sockaddr*>(&address), size);
}

std::string peer_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return numeric(reinterpret_cast<sockaddr*>(&address), size);
}

int peer_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return port_of(address);
}

std::string outside_address() {
  // Connecting a datagram socket sends nothing. The address is reserved for documentation (RFC
  // 5737).
  std::string error;
  const Addresses somewhere = look_up("198.51.100.1", 9, AI_NUMERICHOST, error);
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (somewhere != nullptr &&
      ::connect(socket.get(), somewhere->ai_addr, somewhere->ai_addrlen) == 0 &&
      !is_loopback(own_address(socket))) {
    return own_address(socket);
  }
  for (const auto& [name, address] : own_interfaces()) {
    if (!is_loopback(address) && !address.starts_with("fe80")) {
      return address;
    }
  }
  return "";
}

bool is_from_own_user(const Socket& socket) {
  if (!is_own_address(peer_address(socket))) {
    return false;
  }
  const std::optional<unsigned> user = peer_user(socket);
  return user && (*user == ::geteuid() || *user == 0);
}

std::optional<unsigned> peer_user(const Socket& socket) {
  sockaddr_storage address{}, own_end{};
  socklen_t size = sizeof address, own_size = sizeof own_end;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return std::nullopt;
  }
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own_end), &own_size) == 0) {
    if (const auto user = asked_user(address, own_end)) {
      return user;
    }
  }
  const std::pair<std::string, int> peer(peer_address(socket), port_of(address)),
      own(own_address(socket), bound_port(socket));
  const std::string port = fmt::format(":{:04X} ", peer.second);
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      if (line.find(port) == std::string::npos) {
        continue;
      }
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits;
      unsigned user = 0, timeout = 0;
      uint64_t inode = 0;
      words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      // A socket that belongs to no process has no inode and always reports user 0.
      if (words && inode != 0 && end_of_connection(local) == peer &&
          end_of_connection(remote) == own) {
        return user;
      }
    }
  }
  return std::nullopt;
}

std::string user_name(unsigned user) {
  std::array<char, 4096> buffer{};
  passwd entry{}, *found = nullptr;
  ::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? fmt::format("uid {}", user)
                          : fmt::format("user {} (uid {})", found->pw_name, user);
}

std::vector<std::string> resolve(const std::string& name) {
  std::string ignored;
  std::vector<std::string> result;
  const Addresses found = look_up(name, 0, 0, ignored);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    result.push_back(numeric(at->ai_addr, at->ai_addrlen));
  }
  return result;
}

bool is_loopback_only_here(const std::string& name) {
  const std::vector<std::string> addresses = resolve(name);
  return name != "localhost" && !is_loopback(name) && !addresses.empty() &&
         is_loopback(addresses.front());
}

bool is_own_address(const std::string& address) {
  const auto all = own_interfaces();
  return is_loopback(address) || std::any_of(all.begin(), all.end(), [&](const auto& one) {
           return one.second == address;
         });
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_public(const std::string& address) {
  in_addr parsed{};
  if (::inet_pton(AF_INET, address.c_str(), &parsed) == 1) {
    const uint32_t bits = ntohl(parsed.s_addr);
    return bits >> 24 != 127 && bits >> 24 != 10 && bits >> 20 != 0xAC1 && bits >> 16 != 0xC0A8 &&
           bits >> 16 != 0xA9FE;
  }
  in6_addr version6{};
  if (::inet_pton(AF_INET6, address.c_str(), &version6) == 1) {
    return address != "::1" && !address.starts_with("fe80") && !address.starts_with("fc") &&
           !address.starts_with("fd");
  }
  const std::vector<std::string> named = resolve(address);
  return std::any_of(named.begin(), named.end(), [&](const auto& one) {
    return one != address && is_public(one);
  });
}

std::string interface_of(const std::string& address) {
  for (const auto& [name, own] : own_interfaces()) {
    if (own == address) {
      return fmt::format("{} ({})", name, address);
    }
  }
  return address;
}

std::string route_to(const std::string& address) {
  std::string error;
  const Addresses found = look_up(address, 9, 0, error);
  if (found == nullptr) {
    return "no interface";
  }
  // Connecting a datagram socket sends nothing, but makes the kernel choose a route.
  const Socket socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) {
    return "no interface";
  }
  return interface_of(own_address(socket));
}

std::string own_host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lockstep::launch
