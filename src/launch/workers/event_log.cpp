// Writes the events of a launch as JSON lines.
#include "launch/workers/event_log.h"

#include <chrono>

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace lockstep::launch {

EventLog::EventLog(const std::string& where, const std::string& run_id)
    : console_(where == "console"),
      run_id_(run_id) {
  if (where.starts_with("jsonl:")) {
    file_ = std::make_unique<LogFile>(where.substr(6));
  }
}

void EventLog::write(const std::string& event, const nlohmann::json& more) {
  if (!console_ && file_ == nullptr) {
    return;
  }
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  nlohmann::json whole = more;
  whole["event"] = event;
  whole["run_id"] = run_id_;
  whole["time"] = std::chrono::duration<double>(now).count();
  whole["host"] = host;
  const std::string line =
      whole.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  if (console_) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } else {
    file_->write(line);
  }
}

}  // namespace lockstep::launch
