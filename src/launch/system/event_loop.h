// epoll event loop: one thread waits for child processes, pipes, signals and sockets without
// polling.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>

namespace lockstep::launch {

/// Timeout value of a wait without a limit.
inline constexpr std::chrono::milliseconds kForEver{-1};

/// Calls a handler for each ready descriptor. Used by one thread; only wake() may be called by
/// others.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` when `descriptor` is readable or its peer closed. The caller keeps ownership
  /// of the descriptor.
  void watch(int descriptor, Handler handler);
  /// Calls a watched descriptor's handler also whenever it can be written.
  void want_write(int descriptor, bool wanted);
  /// While wanted, calls a watched descriptor's handler only when it can be written.
  void want_only_write(int descriptor, bool wanted);
  /// Calls `handler` whenever `descriptor` can be written.
  void watch_writable(int descriptor, Handler handler);
  /// Removes a descriptor; call before closing it. Unknown ones are ignored.
  void forget(int descriptor);
  /// Waits at most `timeout` (negative: no limit), runs the handlers of ready descriptors, and
  /// returns true if there were any.
  bool wait(std::chrono::milliseconds timeout);
  /// Ends the loop thread's wait(). Callable from any thread.
  void wake();

 private:
  void add(int descriptor, unsigned events, Handler handler);
  void change(int descriptor, unsigned events);

  int epoll_ = -1;
  int wake_ = -1;
  std::map<int, std::shared_ptr<Handler>> handlers_;
};

}  // namespace lockstep::launch
