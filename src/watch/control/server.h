// Control socket of a run: a Unix socket in the run's folder that receives status requests and
// commands.
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

/// Name of the socket in a run's folder.
inline constexpr const char* kControlName = ".lockstep-control";

/// Command that a run executes between two steps.
struct Act {
  enum class Kind { kSave, kStop, kEvaluate, kLog, kSet, kLogEvery, kTrace };
  Kind kind = Kind::kSave;
  int level = 0;             // a LogLevel, for kLog
  double learning_rate = 0;  // for kSet
  int64_t steps = 0;         // for kTrace and kLogEvery
  bool forced = false;
};

/// Parses a request such as {"act": "set", "learning_rate": 1e-4, "force": true}. Throws Error
/// (config) if it is invalid, or if it differs from the run's configuration without "force".
Act parse_act(const nlohmann::json& request);

/// Pending command. Its client waits for the reply.
class Asked {
 public:
  Asked(Act act, int connection) : act(act), connection_(connection) {}
  /// Closes the connection. If the client has received no reply, it reports that the run ended
  /// before it answered.
  ~Asked();
  Asked(Asked&& other) noexcept
      : act(other.act),
        connection_(std::exchange(other.connection_, -1)) {}
  Asked& operator=(Asked&& other) noexcept {
    std::swap(act, other.act);
    std::swap(connection_, other.connection_);
    return *this;
  }

  /// Sends the result, or the reason for a failure, and closes the connection. Does not block.
  void answer(bool done, const std::string& text);

  Act act;

 private:
  int connection_;
};

/// Listens on `folder`/.lockstep-control (mode 0600) on a background thread. Accepts connections
/// only from this process's user and root. Replies to status requests immediately, even if the run
/// is blocked. The destructor removes the socket.
class ControlServer {
 public:
  /// `check` throws Error if this run does not support the command. It may be called on any thread.
  /// Throws Error (environment) if the socket cannot be created.
  ControlServer(const std::filesystem::path& folder, std::function<void(const Act&)> check);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Sets the reply to `status` requests. "age_s", the seconds since this call, is added when it is
  /// sent.
  void publish(nlohmann::ordered_json status);
  /// Returns the commands received since the last call.
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
      nlohmann::ordered_json::object();  // guarded by mutex_, as are the next two members
  double published_ = 0;
  std::vector<Asked> asked_;
  std::thread thread_;
};

/// Sends a request to the run in a folder and waits for the reply: {"ok": bool, "text": ..} and the
/// fields of the status. Throws Error (environment) if no run is listening, or if the run ends
/// before it replies.
nlohmann::ordered_json ask_run(
    const std::filesystem::path& folder, const nlohmann::ordered_json& request);

}  // namespace lockstep::watch
