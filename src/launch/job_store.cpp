#include "launch/job_store.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <unordered_map>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/log.h"
#include "launch/event_loop.h"
#include "launch/network.h"
#include "launch/store_protocol.h"

namespace lockstep::launch {
namespace {

// A client that asks for much and reads nothing is cut off.
constexpr size_t kMostUnread = size_t{2} << 30;

}  // namespace

class JobStore::Server {
 public:
  explicit Server(Socket listener)
      : listener_(std::move(listener)),
        protocol_(
            [this](StoreProtocol::Client client, std::string_view bytes) { send(client, bytes); }) {
    loop_.watch(listener_.get(), [this] { accept(); });
    thread_ = std::thread([this] {
      while (!leaving_) {
        loop_.wait(kForEver);
        drop_gone();
      }
    });
  }

  ~Server() {
    leaving_ = true;
    loop_.wake();
    thread_.join();
  }

 private:
  struct Guest {
    Socket socket;
    std::string unread;  // answers that the client has not taken yet
  };

  void accept();
  void hear(StoreProtocol::Client client);
  void send(StoreProtocol::Client client, std::string_view bytes);
  void write_some(Guest& guest);
  void drop(StoreProtocol::Client client) { gone_.push_back(client); }
  void drop_gone();

  Socket listener_;
  EventLoop loop_;
  StoreProtocol protocol_;
  std::unordered_map<StoreProtocol::Client, Guest> guests_;
  std::vector<StoreProtocol::Client> gone_;  // taken out after the handlers have returned
  StoreProtocol::Client next_ = 1;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

void JobStore::Server::accept() {
  Socket socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) {
      // Others may leave: the connection waits in the kernel's queue.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return;
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const StoreProtocol::Client client = next_++;
  const int descriptor = socket.get();
  guests_[client].socket = std::move(socket);
  loop_.watch(descriptor, [this, client] { hear(client); });
}

void JobStore::Server::hear(StoreProtocol::Client client) {
  Guest& guest = guests_.at(client);
  if (!guest.unread.empty()) {
    write_some(guest);
  }
  std::array<char, 65536> buffer;
  const ssize_t size = ::recv(guest.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  const bool ended = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
  if (ended || (size > 0 && !protocol_.take(client, {buffer.data(), static_cast<size_t>(size)}))) {
    drop(client);
  }
}

void JobStore::Server::send(StoreProtocol::Client client, std::string_view bytes) {
  Guest& guest = guests_.at(client);
  guest.unread.append(bytes);
  write_some(guest);
  if (guest.unread.size() > kMostUnread) {
    drop(client);
  }
}

void JobStore::Server::write_some(Guest& guest) {
  size_t done = 0;
  while (done < guest.unread.size()) {
    const ssize_t size = ::send(
        guest.socket.get(),
        guest.unread.data() + done,
        guest.unread.size() - done,
        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0) {
      // A connection that is broken is seen by reading.
      done = errno == EAGAIN || errno == EINTR ? done : guest.unread.size();
      break;
    }
    done += static_cast<size_t>(size);
  }
  guest.unread.erase(0, done);
  loop_.want_write(guest.socket.get(), !guest.unread.empty());
}

void JobStore::Server::drop_gone() {
  for (const StoreProtocol::Client client : gone_) {
    const auto found = guests_.find(client);
    if (found != guests_.end()) {
      protocol_.forget(client);
      loop_.forget(found->second.socket.get());
      guests_.erase(found);
    }
  }
  gone_.clear();
}

JobStore::JobStore(const std::string& address, int port) {
  Socket listener = listen_on(address, port);
  port_ = bound_port(listener);
  server_ = std::make_unique<Server>(std::move(listener));
}

JobStore::~JobStore() = default;

}  // namespace lockstep::launch
