// Implements the event loop with epoll.
#include "launch/system/event_loop.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::launch {
namespace {

[[noreturn]] void fail(const char* call) {
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format("{} failed: {}", call, std::strerror(errno)),
      "raise the limit of open files: ulimit -n");
}

}  // namespace

EventLoop::EventLoop() {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_ < 0) {
    fail("epoll_create1");
  }
  watch(wake_, [this] {
    uint64_t count = 0;
    [[maybe_unused]] const auto size = ::read(wake_, &count, sizeof count);
  });
}

EventLoop::~EventLoop() {
  ::close(wake_);
  ::close(epoll_);
}

void EventLoop::add(int descriptor, unsigned events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  const int operation = handlers_.contains(descriptor) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (::epoll_ctl(epoll_, operation, descriptor, &event) != 0) {
    fail("epoll_ctl");
  }
  handlers_[descriptor] = std::make_shared<Handler>(std::move(handler));
}

void EventLoop::watch(int descriptor, Handler handler) {
  add(descriptor, EPOLLIN, std::move(handler));
}

void EventLoop::watch_writable(int descriptor, Handler handler) {
  add(descriptor, EPOLLOUT, std::move(handler));
}

void EventLoop::change(int descriptor, unsigned events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event);
}

void EventLoop::want_write(int descriptor, bool wanted) {
  change(descriptor, EPOLLIN | (wanted ? EPOLLOUT : 0U));
}

void EventLoop::want_only_write(int descriptor, bool wanted) {
  change(descriptor, wanted ? EPOLLOUT : EPOLLIN);
}

void EventLoop::forget(int descriptor) {
  if (handlers_.erase(descriptor) > 0) {
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
  }
}

bool EventLoop::wait(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 64> events{};
  const int wait =
      timeout.count() < 0 ? -1 : static_cast<int>(std::min<int64_t>(timeout.count(), 3600000));
  const int count = ::epoll_wait(epoll_, events.data(), events.size(), wait);
  if (count < 0) {
    if (errno == EINTR) {
      return false;
    }
    fail("epoll_wait");
  }
  for (int i = 0; i < count; ++i) {
    // Look the handler up for each event, because an earlier handler may have removed the
    // descriptor.
    const auto found = handlers_.find(events[i].data.fd);
    if (found != handlers_.end()) {
      const std::shared_ptr<Handler> handler = found->second;
      (*handler)();
    }
  }
  return count > 0;
}

void EventLoop::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto size = ::write(wake_, &one, sizeof one);
}

}  // namespace lockstep::launch
