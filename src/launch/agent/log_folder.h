// Destinations of the workers' output: log files in torchrun's folder structure, and the console.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "launch/plan/launch_plan.h"
#include "launch/workers/output.h"

namespace lockstep::launch {

/// <folder>/<run id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}.
class LogFolder {
 public:
  /// Throws Error (environment) if the folder cannot be created.
  LogFolder(const LogPlan& plan, const std::string& run_id);
  /// Removes a temporary tree unless keep() was called.
  ~LogFolder();
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  struct Place {
    int attempt = 0, rank = 0, local_rank = 0, workers = 1;
    std::string role;
  };
  struct Routes {
    StreamRoute output, error_output;
    std::filesystem::path error_file;
  };
  /// Creates the worker's folder and returns the destinations of its streams.
  Routes routes(const Place& place, Console& output, Console& error_output);
  void keep() { keep_ = true; }
  const std::filesystem::path& path() const { return path_; }
  /// Returns the folder that the destructor removes. Empty if the user chose the folder.
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  std::shared_ptr<LogFile> shared_file(const std::filesystem::path& path);

  LogPlan plan_;
  std::filesystem::path path_, temporary_;
  bool keep_ = false;
  std::string started_;  // "20260101100000"
  std::map<std::filesystem::path, std::weak_ptr<LogFile>> shared_;
};

/// Expands ${role_name}, ${local_rank}, ${rank} and ${hostname} in a prefix. Other macros are left
/// unchanged.
std::string fill_prefix(const std::string& text, const LogFolder::Place& place);

}  // namespace lockstep::launch
