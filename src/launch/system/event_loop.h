// Event loop with epoll. One thread waits for child processes, pipes, signals and sockets without
// polling.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>

namespace lockstep::launch {

/// Timeout for waiting without a limit.
inline constexpr std::chrono::milliseconds kForEver{-1};

/// Calls a handler for each ready descriptor. All functions except wake() must be called on the
/// same thread.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` whenever `descriptor` is readable or its peer has closed it. The caller keeps
  /// ownership of the descriptor.
  void watch(int descriptor, Handler handler);
  /// Sets whether the handler of a watched descriptor is also called when the descriptor is
  /// writable.
  void want_write(int descriptor, bool wanted);
  /// While wanted, calls a watched descriptor's handler only when it can be written.
  void want_only_write(int descriptor, bool wanted);
  /// Calls `handler` whenever `descriptor` can be written.
  void watch_writable(int descriptor, Handler handler);
  /// Removes a descriptor. Must be called before the descriptor is closed. Ignores unknown
  /// descriptors.
  void forget(int descriptor);
  /// Waits for at most `timeout` (negative: no limit) and runs the handlers of ready descriptors.
  /// Returns true if there were any.
  bool wait(std::chrono::milliseconds timeout);
  /// Makes wait() return. May be called on any thread.
  void wake();

 private:
  void add(int descriptor, unsigned events, Handler handler);
  void change(int descriptor, unsigned events);

  int epoll_ = -1;
  int wake_ = -1;
  std::map<int, std::shared_ptr<Handler>> handlers_;
};

}  // namespace lockstep::launch
