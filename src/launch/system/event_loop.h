// epoll with handlers: one thread waits for child processes, pipes, signals and sockets at once,
// without polling.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>

namespace lockstep::launch {

/// The timeout of a wait that has none.
inline constexpr std::chrono::milliseconds kForEver{-1};

/// Runs a handler for each descriptor that is ready. Used by one thread; only wake() may come from
/// another.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` whenever `descriptor` can be read or its other end is closed. The descriptor
  /// stays the caller's.
  void watch(int descriptor, Handler handler);
  /// Calls a watched descriptor's handler also whenever it can be written.
  void want_write(int descriptor, bool wanted);
  /// Calls `handler` whenever `descriptor` can be written.
  void watch_writable(int descriptor, Handler handler);
  /// Takes a descriptor out; call it before closing it. Unknown ones are ignored.
  void forget(int descriptor);
  /// Waits at most `timeout` (negative: for ever), runs the handlers of what is ready, and tells
  /// whether there was any.
  bool wait(std::chrono::milliseconds timeout);
  /// Ends a wait() of the loop's thread. From any thread.
  void wake();

 private:
  void add(int descriptor, unsigned events, Handler handler);

  int epoll_ = -1;
  int wake_ = -1;
  std::map<int, std::shared_ptr<Handler>> handlers_;
};

}  // namespace lockstep::launch
