// The progress of a run in the status of its TrainJob, where Kubeflow's Trainer asks for it:
// percent done, seconds left and the last metrics, as `kubectl get trainjob` shows them.
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

/// The variables that the operator sets in each pod, and that which turns it off.
const std::vector<const char*>& train_job_variables();

/// Sends the newest state by a thread of its own, every 5 s at most. A server that does not answer
/// costs a warning.
class TrainJobStatus final : public MetricsSink {
 public:
  /// Null where `environment`, of train_job_variables(), names no server.
  static std::unique_ptr<TrainJobStatus> of_environment(
      const std::map<std::string, std::string>& environment);
  /// Sends what is not yet sent.
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
  /// Ends the thread, which sends the last state before.
  void stop();

  const std::string url_, certificates_, token_file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> metrics_;
  int percent_ = 0;
  double seconds_left_ = -1;  // below 0: unknown
  bool is_new_ = false, is_ending_ = false, has_ended_ = false, has_warned_ = false;
  std::unique_ptr<HttpClient> client_;  // of the request that goes on
  std::thread thread_;
};

}  // namespace lockstep::monitor
