#include "train/stop_signal.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>

namespace lockstep::train {
namespace {

// A signal handler can reach nothing but a global.
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

}  // namespace

StopSignal::StopSignal() {
  stop_requested = false;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

StopSignal::~StopSignal() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

bool StopSignal::requested() const {
  return stop_requested;
}

SaveSignals::SaveSignals(const config::CheckpointSection& section) : section_(section) {
  struct sigaction action{};
  action.sa_handler = on_save_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, &old_usr1_);
  sigaction(SIGUSR2, &action, &old_usr2_);
}

SaveSignals::~SaveSignals() {
  sigaction(SIGUSR1, &old_usr1_, nullptr);
  sigaction(SIGUSR2, &old_usr2_, nullptr);
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
