// Progress reporting to a Kubeflow TrainJob: percentage done, seconds left and the latest metrics,
// as shown by `kubectl get trainjob`.
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

/// Names of the environment variables that the operator sets in each pod, and of the one that
/// disables reporting.
const std::vector<const char*>& train_job_variables();

/// Sends the latest state from a background thread, at most every 5 s. If the server does not
/// answer, logs a warning.
class TrainJobStatus final : public MetricsSink {
 public:
  /// Returns null if `environment` (the variables of train_job_variables()) names no server.
  static std::unique_ptr<TrainJobStatus> of_environment(
      const std::map<std::string, std::string>& environment);
  /// Sends unsent state.
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
  std::unique_ptr<HttpClient> client_;  // client of the current request
  std::thread thread_;
};

}  // namespace lockstep::monitor
