// Machine-readable events of a launch: one JSON object per line.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/workers/output.h"

namespace lockstep::launch {

class EventLog {
 public:
  /// `where` is "" (no log), "console" (stderr) or "jsonl:PATH" (appends to a file).
  EventLog(const std::string& where, const std::string& run_id);
  /// Writes a line with "event", "run_id", "time" (in seconds), "host" and the fields of the object
  /// `more`.
  void write(const std::string& event, const nlohmann::json& more);

 private:
  bool console_ = false;
  std::string run_id_;
  std::unique_ptr<LogFile> file_;
};

}  // namespace lockstep::launch
