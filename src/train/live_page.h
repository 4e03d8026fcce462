// The page of lockstep monitor, served by a run itself (monitor.page=true).
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "watch/page/page.h"

namespace lockstep::train {

/// Serves the page of one run's folder on a free port of 127.0.0.1, from a thread of its own, as
/// long as it lives.
class LivePage {
 public:
  /// Throws Error (environment) where no port can be had.
  explicit LivePage(const std::string& output_dir);
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  /// What a user opens.
  std::string address() const;

 private:
  watch::RunsPage page_;
  watch::HttpServer server_;
  std::thread thread_;
};

}  // namespace lockstep::train
