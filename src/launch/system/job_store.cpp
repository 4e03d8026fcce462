// Implements the server of the job's store.
#include "launch/system/job_store.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <unordered_map>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/log.h"
#include "launch/system/event_loop.h"
#include "launch/system/network.h"
#include "launch/system/store_protocol.h"

namespace lockstep::launch {
namespace {

// Limit of the unread answers of all clients together. A client that exceeds it is disconnected.
constexpr size_t kMostUnread = size_t{512} << 20;

}  // namespace

class JobStore::Server {
 public:
  Server(Socket listener, std::set<std::string> hosts)
      : listener_(std::move(listener)),
        hosts_(std::move(hosts)),
        protocol_(
            [this](StoreProtocol::Client client, std::string_view bytes) { send(client, bytes); }) {
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
  struct AgentConnection {
    Socket socket;
    std::string unread;  // answers that the client has not read yet
  };

  void serve();
  void accept();
  bool may_join(const Socket& socket) const;
  void take(StoreProtocol::Client client);
  void hear(StoreProtocol::Client client);
  void send(StoreProtocol::Client client, std::string_view bytes);
  void write_some(AgentConnection& agent);
  void drop(StoreProtocol::Client client) { gone_.push_back(client); }
  void drop_gone();

  Socket listener_;
  const std::set<std::string> hosts_;
  EventLoop loop_;
  StoreProtocol protocol_;
  std::unordered_map<StoreProtocol::Client, AgentConnection> agents_;
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
  return is_own_address(peer) ? is_from_own_user(socket) : hosts_.contains(peer);
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
  agents_[client].socket = std::move(socket);
  try {
    loop_.watch(descriptor, [this, client] { take(client); });
  } catch (const std::exception&) {
    drop(client);
    throw;
  }
}

void JobStore::Server::take(StoreProtocol::Client client) {
  try {
    hear(client);
  } catch (const std::exception& error) {
    log_warning("the store of the job disconnected a client: {}", error.what());
    drop(client);
  }
}

void JobStore::Server::hear(StoreProtocol::Client client) {
  AgentConnection& agent = agents_.at(client);
  if (!agent.unread.empty()) {
    write_some(agent);
  }
  std::array<char, 65536> buffer;
  const ssize_t size = ::recv(agent.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  const bool ended = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
  if (ended || (size > 0 && !protocol_.take(client, {buffer.data(), static_cast<size_t>(size)}))) {
    drop(client);
  }
}

void JobStore::Server::send(StoreProtocol::Client client, std::string_view bytes) {
  AgentConnection& agent = agents_.at(client);
  if (unread_ + bytes.size() > kMostUnread) {
    drop(client);
    return;
  }
  agent.unread.append(bytes);
  unread_ += bytes.size();
  write_some(agent);
}

void JobStore::Server::write_some(AgentConnection& agent) {
  size_t done = 0;
  while (done < agent.unread.size()) {
    const ssize_t size = ::send(
        agent.socket.get(),
        agent.unread.data() + done,
        agent.unread.size() - done,
        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0) {
      // The event loop detects a broken connection when it next reads.
      done = errno == EAGAIN || errno == EINTR ? done : agent.unread.size();
      break;
    }
    done += static_cast<size_t>(size);
  }
  agent.unread.erase(0, done);
  unread_ -= done;
  loop_.want_write(agent.socket.get(), !agent.unread.empty());
}

void JobStore::Server::drop_gone() {
  for (const StoreProtocol::Client client : gone_) {
    const auto found = agents_.find(client);
    if (found != agents_.end()) {
      protocol_.forget(client);
      loop_.forget(found->second.socket.get());
      unread_ -= found->second.unread.size();
      agents_.erase(found);
    }
  }
  gone_.clear();
}

JobStore::JobStore(const std::string& address, int port, std::set<std::string> hosts) {
  Socket listener = listen_on(address, port);
  port_ = bound_port(listener);
  server_ = std::make_unique<Server>(std::move(listener), std::move(hosts));
}

JobStore::~JobStore() = default;

}  // namespace lockstep::launch
