// Implements torchelastic's file timer.
#include "launch/workers/watchdog.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <set>
#include <vector>

#include <fcntl.h>
#include <limits.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_number.h"
#include "base/log.h"
#include "base/temporary_folder.h"
#include "launch/system/descendants.h"
#include "launch/system/process.h"
#include "launch/system/secret.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostTimers = 100'000;

template <class Clock>
double seconds_of() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

std::optional<TimerRequest> parse_timer_request(std::string_view line) {
  try {
    const nlohmann::json object = parse_json(line, "a timer's request");
    TimerRequest request;
    request.pid = integer_of<pid_t>(object.at("pid"));
    request.scope = object.at("scope_id").get<std::string>();
    request.expires = object.at("expiration_time").get<double>();
    request.signal = integer_of<int>(object.at("signal"));
    const bool good = request.pid > 0 && std::isfinite(request.expires) && request.signal < NSIG;
    return good ? std::optional(request) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Watchdog::Watchdog(EventLoop& loop, const std::string& path)
    : loop_(loop),
      path_(
          path.empty() ? temporary_folder() / ("watchdog_timer_" + random_hex().substr(0, 16))
                       : std::filesystem::path(path)) {
  std::error_code ignored;
  if (std::filesystem::is_fifo(path_, ignored)) {
    std::filesystem::remove(path_, ignored);
  }
  if (::mkfifo(path_.c_str(), 0600) != 0) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot create the pipe {}: {}", path_.string(), std::strerror(errno)),
        "set TORCHELASTIC_TIMER_FILE to an unused name");
  }
  // Also open the pipe for writing. Otherwise reading would end when the last writer closes it.
  pipe_ = ::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  loop_.watch(pipe_, [this] { read_requests(); });
  loop_.watch(timer_, [this] {
    uint64_t count = 0;
    [[maybe_unused]] const auto size = ::read(timer_, &count, sizeof count);
    end_late_workers();
    set_alarm();
  });
}

Watchdog::~Watchdog() {
  loop_.forget(pipe_);
  loop_.forget(timer_);
  ::close(pipe_);
  ::close(timer_);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void Watchdog::read_requests() {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(pipe_, buffer.data(), buffer.size());
  for (ssize_t i = 0; i < size; ++i) {
    if (buffer[static_cast<size_t>(i)] != '\n') {
      line_ += buffer[static_cast<size_t>(i)];
      continue;
    }
    if (const auto request = parse_timer_request(line_)) {
      take(*request);
    } else {
      log_warning("ignored invalid timer from {}: {}", path_.string(), line_.substr(0, 80));
    }
    line_.clear();
  }
  if (line_.size() > PIPE_BUF) {
    line_.clear();  // longer than any valid request
  }
  set_alarm();
}

void Watchdog::take(const TimerRequest& request) {
  const std::pair key(request.pid, request.scope);
  if (request.expires < 0) {
    timers_.erase(key);
  } else if (timers_.size() < kMostTimers) {
    // Workers send a time of the wall clock, which an administrator or NTP may set: a change must
    // not end workers that are in time.
    TimerRequest& timer = timers_[key] = request;
    timer.expires +=
        seconds_of<std::chrono::steady_clock>() - seconds_of<std::chrono::system_clock>();
  }
}

void Watchdog::end_late_workers() {
  const double time = seconds_of<std::chrono::steady_clock>();
  std::map<pid_t, const TimerRequest*> late;  // per worker, the first expired request with a signal
  for (const auto& [key, request] : timers_) {
    if (request.expires <= time) {
      const TimerRequest*& first = late[request.pid];
      const bool better = first == nullptr || (first->signal <= 0 && request.signal > 0) ||
                          (request.signal > 0 && request.expires < first->expires);
      first = better ? &request : first;
    }
  }
  const std::vector<pid_t> ours = late.empty() ? std::vector<pid_t>{} : descendants_of(::getpid());
  for (const auto& [pid, request] : late) {
    // Any process of this user can write to the pipe, so only end processes that this process
    // started.
    if (request->signal > 0 && std::find(ours.begin(), ours.end(), pid) != ours.end()) {
      log_error(
          "the worker with PID {} did not finish '{}' in time; sending {}",
          pid,
          request->scope,
          signal_name(request->signal));
      ::kill(pid, request->signal);
    }
  }
  std::erase_if(timers_, [&](const auto& entry) { return late.contains(entry.first.first); });
}

void Watchdog::set_alarm() {
  itimerspec alarm{};
  if (!timers_.empty()) {
    const double first =
        std::min_element(timers_.begin(), timers_.end(), [](const auto& a, const auto& b) {
          return a.second.expires < b.second.expires;
        })->second.expires;
    const double bounded = std::clamp(first, 1e-3, 1e12);
    alarm.it_value.tv_sec = static_cast<time_t>(bounded);
    alarm.it_value.tv_nsec = static_cast<long>((bounded - std::floor(bounded)) * 1e9);
  }
  ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &alarm, nullptr);
}

}  // namespace lockstep::launch
