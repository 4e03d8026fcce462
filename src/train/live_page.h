// Monitor page of `lockstep monitor`, served by the run itself (monitor.page=true).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "watch/page/page.h"

namespace lockstep::train {

/// Serves the page of one run folder on a free port of 127.0.0.1 during its lifetime, in a separate
/// thread.
class LivePage {
 public:
  /// Throws Error (environment) if no port is available, Error (checkpoint) if the file cannot be
  /// written.
  explicit LivePage(const std::string& output_dir);
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  /// File that contains the URL of the page.
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  watch::RunsPage page_;
  watch::HttpServer server_;
  std::thread thread_;
};

}  // namespace lockstep::train
