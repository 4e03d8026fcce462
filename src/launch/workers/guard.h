// What a process takes upon itself before it starts workers: signals become events, orphans become
// its own, and a keeper stands by.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/system/descendants.h"
#include "launch/system/event_loop.h"

namespace lockstep::launch {

/// One at a time in a process, on the thread that starts the workers, before other threads are made
/// (they inherit the blocked signals). The destructor gives the signals back.
class Guard {
 public:
  /// `signals` are caught and forwarded instead of ending this process. SIGUSR1 and SIGUSR2, where
  /// they are none of those, are passed on to workers and end nothing.
  explicit Guard(std::vector<int> signals);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  EventLoop& loop() { return loop_; }
  /// The last signal that came, and how many came in all. A SIGTERM soon after another is the same
  /// request: engines tell a process, the one that started it, and other nodes' agents, and each
  /// passes it on.
  std::optional<int> signal() const { return signal_; }
  /// As if `signal` had come: another node's agent got it.
  void take_signal(int signal);
  int signals_seen() const { return seen_; }
  /// Who is told of signals that are passed on; empty: nobody.
  void set_pass_on(std::function<void(int signal)> pass_on) { pass_on_ = std::move(pass_on); }
  /// NAME and VALUE of the variable that marks the workers and all that they fork.
  static constexpr const char* kTagName = "LOCKSTEP_SUPERVISOR";
  const std::string& tag() const { return tag_; }
  /// The keeper removes the folder if this process is killed.
  void remove_if_killed(const std::filesystem::path& folder) const {
    keeper_->remove_afterwards(folder);
  }
  /// Ends every process below this one that did not run before; SIGTERM, `grace`, SIGKILL.
  void end_descendants(std::chrono::milliseconds grace);

 private:
  void on_signal();

  EventLoop loop_;
  int signal_descriptor_ = -1;
  sigset_t old_mask_{};
  std::vector<int> passed_on_;
  std::function<void(int signal)> pass_on_;
  std::optional<int> signal_;
  int seen_ = 0;
  std::chrono::steady_clock::time_point asked_;  // when the last one came that counted
  std::string tag_;
  std::vector<pid_t> before_;
  std::optional<Keeper> keeper_;
};

}  // namespace lockstep::launch
