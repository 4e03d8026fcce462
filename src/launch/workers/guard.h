// Guard of a supervising process: signals become events, orphans are adopted, and a keeper process
// cleans up.
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

/// One per process, on the thread that starts the workers, before other threads exist (they inherit
/// the blocked signals). The destructor restores the signals.
class Guard {
 public:
  /// `signals` are caught and forwarded instead of ending this process. SIGUSR1 and SIGUSR2, if not
  /// among them, are passed on to workers without ending anything.
  explicit Guard(std::vector<int> signals);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  EventLoop& loop() { return loop_; }
  /// The last signal received, and the number of signals. A SIGTERM soon after another counts as
  /// the same request: cluster engines signal a process, its launcher and the other nodes' agents,
  /// and each forwards it.
  std::optional<int> signal() const { return signal_; }
  /// Acts as if `signal` had been received: another node's agent got it.
  void take_signal(int signal);
  int signals_seen() const { return seen_; }
  /// Sets the receiver of passed-on signals; empty: none.
  void set_pass_on(std::function<void(int signal)> pass_on) { pass_on_ = std::move(pass_on); }
  /// NAME and VALUE of the variable that marks the workers and all that they fork.
  static constexpr const char* kTagName = "LOCKSTEP_SUPERVISOR";
  const std::string& tag() const { return tag_; }
  /// The keeper removes the folder if this process is killed.
  void remove_if_killed(const std::filesystem::path& folder) const {
    keeper_->remove_afterwards(folder);
  }
  /// Terminates every descendant that did not run before: SIGTERM, `grace`, SIGKILL.
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
  std::chrono::steady_clock::time_point asked_;  // time of the last signal that counted
  std::string tag_;
  std::vector<pid_t> before_;
  std::optional<Keeper> keeper_;
};

}  // namespace lockstep::launch
