// Installs the signal handlers of a run.
#include "train/stop_signal.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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

void on_signal(int signal) {
  if (stop_requested.exchange(true) && signal == SIGINT) {
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

StopSignal::StopSignal() {
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

SaveSignals::Asked SaveSignals::take() {
  Asked asked = Asked::kNothing;
  const auto look = [&](std::atomic<bool>& came, const std::string& what) {
    if (came.exchange(false)) {
      asked = std::max(
          asked,
          what == "save"            ? Asked::kSave
          : what == "save_and_stop" ? Asked::kSaveAndStop
                                    : Asked::kNothing);
    }
  };
  look(usr1_came, section_.on_usr1);
  look(usr2_came, section_.on_usr2);
  return asked;
}

}  // namespace lockstep::train
