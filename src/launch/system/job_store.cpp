// Implements the server of the job's store.
#include "launch/system/job_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/log.h"
#include "launch/system/event_loop.h"
#include "launch/system/network.h"
#include "launch/system/store_protocol.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

// Limit of unread answers over all clients: one of the largest. Beyond it, the client that has not
// read for the longest time is disconnected.
constexpr size_t kMostUnread = StoreProtocol::kMostHeld;
// Limit of bytes that are sent to a client before others are served.
constexpr size_t kMostSent = size_t{1} << 20;

}  // namespace

// A client's requests are read and processed in portions, and only while it has no unread answer.
class JobStore::Server {
 public:
  Server(Socket listener, Hosts hosts)
      : listener_(std::move(listener)),
        hosts_(std::move(hosts)),
        protocol_([this](StoreProtocol::Client client, std::string answer) {
          return send(client, std::move(answer));
        }) {
    loop_.watch(listener_.get(), [this] { accept(); });
    thread_ = std::thread([this] {
      while (!leaving_) {
        serve();
      }
    });
  }

  ~Server() {
    leaving_ = true;
    loop_.wake();
    thread_.join();
  }

 private:
  struct Connection {
    Socket socket;
    std::string unread;         // answers
    size_t sent = 0;            // bytes of them that have been sent
    Clock::time_point read_at;  // when the client last read some of them
    bool has_requests = false;  // StoreProtocol::Progress::kHasRequests
    bool rests = false;         // nothing is read from it
    bool gone = false;
  };

  void serve();
  void accept();
  bool may_join(const Socket& socket) const;
  void take(StoreProtocol::Client client);
  void hear(StoreProtocol::Client client, Connection& connection);
  bool send(StoreProtocol::Client client, std::string answer);
  void write_some(StoreProtocol::Client client, Connection& connection);
  void drop(StoreProtocol::Client client);
  void drop_slowest();
  void drop_gone();
  void rest_or_read(Connection& connection);

  Socket listener_;
  const Hosts hosts_;
  EventLoop loop_;
  StoreProtocol protocol_;
  std::unordered_map<StoreProtocol::Client, Connection> connections_;
  std::vector<StoreProtocol::Client> gone_;  // removed after the handlers have returned
  StoreProtocol::Client next_ = 1;
  size_t unread_ = 0;  // of all clients
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

// An error caused by a client only ends its connection, because all ranks depend on this process.
void JobStore::Server::serve() {
  try {
    loop_.wait(kForEver);
    drop_gone();
  } catch (const std::exception& error) {
    log_warning("store of the job: {}", error.what());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool JobStore::Server::may_join(const Socket& socket) const {
  const std::string peer = peer_address(socket);
  return is_own_address(peer) ? is_from_own_user(socket) : !hosts_ || hosts_->contains(peer);
}

void JobStore::Server::accept() {
  Socket socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) {
      // Wait until descriptors are closed elsewhere. The connection stays in the kernel's queue.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return;
  }
  if (!may_join(socket)) {
    return;
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const StoreProtocol::Client client = next_++;
  const int descriptor = socket.get();
  connections_[client].socket = std::move(socket);
  try {
    loop_.watch(descriptor, [this, client] { take(client); });
  } catch (const std::exception&) {
    drop(client);
    throw;
  }
}

void JobStore::Server::take(StoreProtocol::Client client) {
  Connection& connection = connections_.at(client);
  try {
    write_some(client, connection);
    if (!connection.gone && connection.unread.empty()) {
      hear(client, connection);
    }
  } catch (const std::exception& error) {
    log_warning("the store of the job disconnected a client: {}", error.what());
    drop(client);
  }
  rest_or_read(connection);
}

void JobStore::Server::hear(StoreProtocol::Client client, Connection& connection) {
  std::array<char, StoreProtocol::kMostBytes> buffer;
  size_t size = 0;
  if (!connection.has_requests) {
    const ssize_t received =
        ::recv(connection.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) {
      drop(client);
    }
    if (received <= 0) {
      return;
    }
    size = static_cast<size_t>(received);
  }
  const StoreProtocol::Progress progress = protocol_.take(client, {buffer.data(), size});
  connection.has_requests = progress == StoreProtocol::Progress::kHasRequests;
  if (progress == StoreProtocol::Progress::kRefused) {
    drop(client);
  }
}

bool JobStore::Server::send(StoreProtocol::Client client, std::string answer) {
  Connection& connection = connections_.at(client);
  if (connection.gone) {
    return false;
  }
  unread_ += answer.size();
  if (connection.unread.empty()) {
    connection.unread = std::move(answer);
    connection.read_at = Clock::now();
  } else {
    connection.unread += answer;
  }
  write_some(client, connection);
  while (unread_ > kMostUnread) {
    drop_slowest();
  }
  rest_or_read(connection);
  return !connection.gone && connection.unread.empty();
}

void JobStore::Server::write_some(StoreProtocol::Client client, Connection& connection) {
  const size_t left = std::min(connection.unread.size() - connection.sent, kMostSent);
  if (left == 0) {
    return;
  }
  const ssize_t size = ::send(
      connection.socket.get(),
      connection.unread.data() + connection.sent,
      left,
      MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size < 0) {
    if (errno != EAGAIN && errno != EINTR) {
      drop(client);
    }
    return;
  }
  connection.sent += static_cast<size_t>(size);
  unread_ -= static_cast<size_t>(size);
  connection.read_at = Clock::now();
  if (connection.sent == connection.unread.size()) {
    connection.unread = {};
    connection.sent = 0;
  }
}

// A client that has to read, or whose requests have not all been processed, is served again when
// its socket can be written.
void JobStore::Server::rest_or_read(Connection& connection) {
  const bool rests = !connection.unread.empty() || connection.has_requests;
  if (!connection.gone && rests != connection.rests) {
    connection.rests = rests;
    loop_.want_only_write(connection.socket.get(), rests);
  }
}

// Frees the client's answers at once; the rest follows when no handler uses it.
void JobStore::Server::drop(StoreProtocol::Client client) {
  Connection& connection = connections_.at(client);
  if (!connection.gone) {
    connection.gone = true;
    unread_ -= connection.unread.size() - connection.sent;
    connection.unread = {};
    connection.sent = 0;
    gone_.push_back(client);
  }
}

void JobStore::Server::drop_slowest() {
  const auto slowest =
      std::min_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
        const auto key = [](const Connection& connection) {
          return std::pair(connection.unread.empty(), connection.read_at);
        };
        return key(a.second) < key(b.second);
      });
  drop(slowest->first);
}

void JobStore::Server::drop_gone() {
  for (const StoreProtocol::Client client : gone_) {
    protocol_.forget(client);
    loop_.forget(connections_.at(client).socket.get());
    connections_.erase(client);
  }
  gone_.clear();
}

JobStore::JobStore(const std::string& address, int port, Hosts hosts) {
  Socket listener = listen_on(address, port);
  port_ = bound_port(listener);
  server_ = std::make_unique<Server>(std::move(listener), std::move(hosts));
}

JobStore::~JobStore() = default;

}  // namespace lockstep::launch
