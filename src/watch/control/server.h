// A run's ear: a unix socket in its folder, at which its user asks how it is and asks it to act.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::watch {

/// The socket's name in a run's folder.
inline constexpr const char* kControlName = ".lockstep-control";

/// What a run is asked to do between two steps.
struct Act {
  enum class Kind { kSave, kStop, kEvaluate, kLog, kSet, kLogEvery, kTrace };
  Kind kind = Kind::kSave;
  int level = 0;             // of kLog: LogLevel's number
  double learning_rate = 0;  // of kSet
  int64_t steps = 0;         // of kTrace, kLogEvery
  bool forced = false;
};

/// The act of a request such as {"act": "set", "learning_rate": 1e-4, "force": true}. Throws Error
/// (config) that says what is not understood, or that an act which makes the run another one than
/// its configuration describes wants to be forced.
Act parse_act(const nlohmann::json& request);

/// Somebody waits for the answer to an act.
class Asked {
 public:
  Asked(Act act, int connection) : act(act), connection_(connection) {}
  /// An act that was not answered is told to have been dropped, by the connection's end.
  ~Asked();
  Asked(Asked&& other) noexcept
      : act(other.act),
        connection_(std::exchange(other.connection_, -1)) {}
  Asked& operator=(Asked&& other) noexcept {
    std::swap(act, other.act);
    std::swap(connection_, other.connection_);
    return *this;
  }

  /// Says what was done, or why it was not, and hangs up. Never blocks.
  void answer(bool done, const std::string& text);

  Act act;

 private:
  int connection_;
};

/// Listens on `folder`/.lockstep-control, mode 0600, in a thread of its own; whoever connects must
/// be of this process's user, or root. Status is answered at once, whatever the run does. The
/// socket goes with the object.
class ControlServer {
 public:
  /// `check` throws an Error for an act that this run cannot do; any thread. Throws Error
  /// (environment) where the folder cannot hold a socket.
  ControlServer(const std::filesystem::path& folder, std::function<void(const Act&)> check);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// What `status` answers from now on, with "age_s" added: the seconds since.
  void publish(nlohmann::ordered_json status);
  /// What was asked for since the last call.
  std::vector<Asked> take();

 private:
  void listen();
  void hear(int connection);
  std::string status_line();

  std::filesystem::path folder_;
  std::function<void(const Act&)> check_;
  int listener_ = -1, wake_ = -1;
  std::mutex mutex_;
  nlohmann::ordered_json status_ =
      nlohmann::ordered_json::object();  // guarded by mutex_, as the next two are
  double published_ = 0;
  std::vector<Asked> asked_;
  std::thread thread_;
};

/// Sends a request to the run of a folder and waits for its answer: {"ok": bool, "text": ..} and
/// what status adds. Throws Error (environment) where no run listens, or it ended meanwhile.
nlohmann::ordered_json ask_run(
    const std::filesystem::path& folder, const nlohmann::ordered_json& request);

}  // namespace lockstep::watch
