// Reports progress to a Kubeflow TrainJob: percentage, seconds left and the latest metrics.
// `kubectl get trainjob` shows them.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "monitor/http_client.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// Returns the names of the environment variables that the operator sets in each pod, and of the
/// variable that disables reporting.
const std::vector<const char*>& train_job_variables();

/// Sends the latest state on a background thread, at most every 5 s. If the server does not answer,
/// logs a warning.
class TrainJobStatus final : public MetricsSink {
 public:
  /// Returns null if no server is named in `environment`, which contains train_job_variables().
  static std::unique_ptr<TrainJobStatus> of_environment(
      const std::map<std::string, std::string>& environment);
  /// Sends the last state if it was not sent yet.
  ~TrainJobStatus() override;
  TrainJobStatus(const TrainJobStatus&) = delete;
  TrainJobStatus& operator=(const TrainJobStatus&) = delete;

  void log(const Record& record) override;
  void log_progress(const ProgressFigures& figures) override;
  void finish() override;

 private:
  TrainJobStatus(std::string url, std::string certificates, std::string token_file);
  void run();
  void send(const std::string& body);
  std::string body() const;
  /// Sends the last state and ends the thread.
  void stop();

  const std::string url_, certificates_, token_file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> metrics_;
  int percent_ = 0;
  double seconds_left_ = -1;  // negative if unknown
  bool is_new_ = false, is_ending_ = false, has_ended_ = false, has_warned_ = false;
  std::unique_ptr<HttpClient> client_;  // used by the current request
  std::thread thread_;
};

}  // namespace lockstep::monitor
