// Process-wide setup of a supervisor: converts signals to events, adopts orphans, and starts a
// keeper process that cleans up if the supervisor is killed.
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

/// There may be one per process. It must be created on the thread that starts the workers, before
/// any other thread, because threads inherit the blocked signals. The destructor restores the
/// signals.
class Guard {
 public:
  /// `signals` are caught and forwarded to the workers instead of ending this process. SIGUSR1 and
  /// SIGUSR2, if not among them, are passed on to the workers and end nothing.
  explicit Guard(std::vector<int> signals);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  EventLoop& loop() { return loop_; }
  /// Returns the last signal received; signals_seen() returns their number. A SIGTERM shortly after
  /// another one is not counted, because cluster managers signal a process, its launcher and the
  /// agents of other nodes, each of which forwards it.
  std::optional<int> signal() const { return signal_; }
  /// Acts as if `signal` had been received. Used if the agent of another node received it.
  void take_signal(int signal);
  int signals_seen() const { return seen_; }
  /// Sets the function that is called for signals to pass on. Empty: none.
  void set_pass_on(std::function<void(int signal)> pass_on) { pass_on_ = std::move(pass_on); }
  /// Name and value of the environment variable that marks the workers and the processes that they
  /// fork.
  static constexpr const char* kTagName = "LOCKSTEP_SUPERVISOR";
  const std::string& tag() const { return tag_; }
  /// Makes the keeper remove the folder if this process is killed.
  void remove_if_killed(const std::filesystem::path& folder) const {
    keeper_->remove_afterwards(folder);
  }
  /// Ends every descendant that was started during the object's lifetime: sends SIGTERM, waits for
  /// `grace`, and sends SIGKILL.
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
