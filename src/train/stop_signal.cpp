// Installs the signal handlers of a run.
#include "train/stop_signal.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace lockstep::train {
namespace {

// Signal handlers can only access globals.
std::atomic<bool> stop_requested{
    false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

std::atomic<bool> usr1_came{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> usr2_came{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void on_save_signal(int signal) {
  (signal == SIGUSR1 ? usr1_came : usr2_came) = true;
}

// Pipe to the thread that acknowledges the signal; -1: none.
std::atomic<int> answer_descriptor{
    -1};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void on_signal(int signal) {
  if (!stop_requested.exchange(true)) {
    const int kept = errno;
    const auto byte = static_cast<char>(signal);
    if (const int to = answer_descriptor; to >= 0) {
      [[maybe_unused]] const ssize_t written = ::write(to, &byte, 1);
    }
    errno = kept;
  } else if (signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

/// Signal handlers that are installed while at least one rank of this process uses them.
class Handlers {
 public:
  Handlers(std::vector<int> signals, void (*handler)(int))
      : signals_(std::move(signals)),
        handler_(handler),
        old_(signals_.size()) {}

  /// Returns true for the first rank that uses the handlers.
  bool take() {
    const std::lock_guard lock(mutex_);
    if (users_++ > 0) {
      return false;
    }
    struct sigaction action{};
    action.sa_handler = handler_;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < signals_.size(); ++i) {
      sigaction(signals_[i], &action, &old_[i]);
      if (signals_[i] == SIGHUP && old_[i].sa_handler == SIG_IGN) {  // ignored by nohup
        sigaction(signals_[i], &old_[i], nullptr);
      }
    }
    return true;
  }
  void give_back() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) {
      for (size_t i = 0; i < signals_.size(); ++i) {
        sigaction(signals_[i], &old_[i], nullptr);
      }
    }
  }

 private:
  const std::vector<int> signals_;
  void (*const handler_)(int);
  std::mutex mutex_;
  int users_ = 0;
  std::vector<struct sigaction> old_;
};

Handlers& stop_handlers() {
  static Handlers handlers({SIGTERM, SIGINT, SIGHUP}, on_signal);
  return handlers;
}

Handlers& save_handlers() {
  static Handlers handlers({SIGUSR1, SIGUSR2}, on_save_signal);
  return handlers;
}

}  // namespace

/// Thread that logs the first signal: a handler may not use locks, which the log needs.
class StopSignal::Answerer {
 public:
  Answerer() {
    if (::pipe2(pipe_.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorKind::kEnvironment, fmt::format("pipe2 failed: {}", std::strerror(errno)));
    }
    thread_ = std::thread([from = pipe_[0]] {
      char signal = 0;
      while (::read(from, &signal, 1) == 1 && signal != 0) {
        log_info(
            "{}",
            signal == SIGINT
                ? "stopping after this step and saving; press Ctrl-C again to stop without saving"
                : fmt::format(
                      "{} received: stopping after this step and saving",
                      signal == SIGHUP ? "SIGHUP" : "SIGTERM"));
      }
    });
    answer_descriptor = pipe_[1];
  }
  ~Answerer() {
    answer_descriptor = -1;
    const char end = 0;
    if (::write(pipe_[1], &end, 1) == 1) {
      thread_.join();
    } else {
      thread_.detach();
    }
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;

 private:
  std::array<int, 2> pipe_{-1, -1};
  std::thread thread_;
};

StopSignal::StopSignal(Reply reply) {
  if (reply == Reply::kLog) {
    answerer_ = std::make_unique<Answerer>();
  }
  if (stop_handlers().take()) {
    stop_requested = false;
  }
}

StopSignal::~StopSignal() {
  stop_handlers().give_back();
}

bool StopSignal::requested() const {
  return stop_requested;
}

SaveSignals::SaveSignals(const config::CheckpointSection& section) : section_(section) {
  if (save_handlers().take()) {
    usr1_came = usr2_came = false;
  }
}

SaveSignals::~SaveSignals() {
  save_handlers().give_back();
}

SaveSignals::Asked SaveSignals::asked() const {
  return strongest(usr1_came, usr2_came);
}

SaveSignals::Asked SaveSignals::take() {
  const bool usr1 = usr1_came.exchange(false), usr2 = usr2_came.exchange(false);
  return strongest(usr1, usr2);
}

SaveSignals::Asked SaveSignals::strongest(bool usr1, bool usr2) const {
  const auto by = [](bool came, const std::string& what) {
    return !came                     ? Asked::kNothing
           : what == "save"          ? Asked::kSave
           : what == "save_and_stop" ? Asked::kSaveAndStop
                                     : Asked::kNothing;
  };
  return std::max(by(usr1, section_.on_usr1), by(usr2, section_.on_usr2));
}

}  // namespace lockstep::train
