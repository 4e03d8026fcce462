// Measures how much of the communication time is data transfer.
#include "comm/moving.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

// A check takes about 0.2 microseconds per socket, which is less than 0.1 % of a core.
constexpr std::chrono::microseconds kLook{100'000}, kLookASocket{500};

std::atomic<int64_t>& nanoseconds_moving() {
  static std::atomic<int64_t> nanoseconds = 0;
  return nanoseconds;
}

/// Returns the total seconds for which the peer's receive window was full; nullopt if the
/// descriptor is not an established connection.
std::optional<double> seconds_without_room(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  constexpr uint8_t established = 1;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      info.tcpi_state != established) {
    return std::nullopt;
  }
  return static_cast<double>(info.tcpi_rwnd_limited) * 1e-6;
}

/// Returns the TCP connections that are open in this process.
std::set<int> connections() {
  std::set<int> found;
  std::error_code none;
  for (const auto& each : fs::directory_iterator("/proc/self/fd", none)) {
    const std::string name = each.path().filename().string();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number >= 0 && seconds_without_room(number)) {
      found.insert(number);
    }
  }
  return found;
}

/// Samples sockets. Unsent bytes mean that the link is slow, unless the receive window of the peer
/// is full.
class Sockets {
 public:
  static Sockets& of_process() {
    static Sockets sockets;
    return sockets;
  }

  void add(const std::set<int>& sockets) {
    const std::scoped_lock lock(mutex_);
    for (const int socket : sockets) {
      without_room_[socket] = seconds_without_room(socket).value_or(0);
    }
    if (!thread_.joinable() && !without_room_.empty()) {
      thread_ = std::jthread([this](const std::stop_token& ends) { run(ends); });
    }
  }

 private:
  void run(const std::stop_token& ends) {
    ::pthread_setname_np(::pthread_self(), "lockstep-links");
    std::unique_lock lock(mutex_);
    double looked = seconds_now();
    while (true) {
      const auto rest =
          std::max<std::chrono::microseconds>(kLook, kLookASocket * without_room_.size());
      if (ended_.wait_for(lock, ends, rest, [&] { return ends.stop_requested(); })) {
        return;
      }
      const double now = seconds_now();
      if (is_held_up(now - looked)) {
        add_seconds_moving(now - looked);
      }
      looked = now;
    }
  }

  /// Returns true if a link is currently delaying bytes; the last sample was `seconds` ago.
  bool is_held_up(double seconds) {
    bool held_up = false;
    for (auto at = without_room_.begin(); at != without_room_.end();) {
      int unsent = 0;
      if (::ioctl(at->first, SIOCOUTQNSD, &unsent) != 0) {
        at = without_room_.erase(at);  // the group of the socket has ended
        continue;
      }
      if (const auto now = unsent > 0 ? seconds_without_room(at->first) : std::nullopt) {
        held_up = held_up || *now - at->second < seconds / 2;
        at->second = *now;
      }
      ++at;
    }
    return held_up;
  }

  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::map<int, double> without_room_;  // keyed by socket: seconds with a full window at the last
                                        // check
  std::jthread thread_;                 // last member, so that it stops before the others are
                                        // destroyed
};

}  // namespace

double seconds_moving() {
  return static_cast<double>(nanoseconds_moving().load()) * 1e-9;
}

void add_seconds_moving(double seconds) {
  nanoseconds_moving() += static_cast<int64_t>(seconds * 1e9);
}

void watch_sockets_of(const std::function<void()>& join) {
  const std::set<int> before = connections();
  join();
  std::set<int> opened;
  for (const int socket : connections()) {
    if (!before.contains(socket)) {
      opened.insert(socket);
    }
  }
  Sockets::of_process().add(opened);
}

}  // namespace lockstep::comm
