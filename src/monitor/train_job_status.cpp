// Sends training progress to the status server of a Kubeflow TrainJob.
#include "monitor/train_job_status.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <ctime>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "monitor/metrics.h"
#include "monitor/progress.h"

namespace lockstep::monitor {
namespace {

constexpr const char* kUrl = "KUBEFLOW_TRAINER_SERVER_URL";
constexpr const char* kCertificates = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
constexpr const char* kToken = "KUBEFLOW_TRAINER_SERVER_TOKEN";
constexpr const char* kOff = "DISABLE_KUBEFLOW_INTEGRATION";

constexpr auto kPause = std::chrono::seconds(5), kPatience = std::chrono::seconds(5);
// Limits of the Kubeflow operator.
constexpr size_t kMostStatusMetrics = 256, kLongestWord = 64;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

const std::vector<const char*>& train_job_variables() {
  static const std::vector<const char*> names{kUrl, kCertificates, kToken, kOff};
  return names;
}

std::unique_ptr<TrainJobStatus> TrainJobStatus::of_environment(
    const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::string off = value(kOff);
  std::ranges::transform(off, off.begin(), [](unsigned char c) { return std::toupper(c); });
  if (value(kUrl).empty() || off == "TRUE") {
    return nullptr;
  }
  return std::unique_ptr<TrainJobStatus>(
      new TrainJobStatus(value(kUrl), value(kCertificates), value(kToken)));
}

TrainJobStatus::TrainJobStatus(std::string url, std::string certificates, std::string token_file)
    : url_(std::move(url)),
      certificates_(std::move(certificates)),
      token_file_(std::move(token_file)),
      thread_([this] { run(); }) {}

TrainJobStatus::~TrainJobStatus() {
  stop();
}

void TrainJobStatus::log(const Record& record) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, number] : record.values) {
    std::string value = number_text(number);
    if (name.size() <= kLongestWord && value.size() <= kLongestWord &&
        (metrics_.contains(name) || metrics_.size() < kMostStatusMetrics)) {
      metrics_[name] = std::move(value);  // sent after this step or at the end of the run
    }
  }
}

void TrainJobStatus::log_progress(const ProgressFigures& figures) {
  const std::lock_guard lock(mutex_);
  if (figures.total_steps > 0) {
    // Stay below 100 %, because the run has work to do after the last step.
    percent_ = std::clamp<int>(static_cast<int>(figures.step * 100 / figures.total_steps), 0, 99);
  }
  seconds_left_ = figures.seconds_left.value_or(-1);
  is_new_ = true;
  changed_.notify_all();
}

void TrainJobStatus::finish() {
  {
    const std::lock_guard lock(mutex_);
    percent_ = 100;
    seconds_left_ = 0;
    is_new_ = true;
  }
  stop();
}

void TrainJobStatus::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kPatience, [&] { return has_ended_; }) && client_ != nullptr) {
      client_->cancel();
    }
  }
  thread_.join();
}

std::string TrainJobStatus::body() const {
  auto metrics = nlohmann::ordered_json::array();
  for (const auto& [name, value] : metrics_) {
    metrics.push_back({{"name", name}, {"value", value}});
  }
  nlohmann::ordered_json status{
      {"progressPercentage", percent_},
      {"metrics", std::move(metrics)},
      {"lastUpdatedTime", utc_now()}};
  if (seconds_left_ >= 0) {
    status["estimatedRemainingSeconds"] = static_cast<int64_t>(seconds_left_);
  }
  return nlohmann::ordered_json{{"trainerStatus", std::move(status)}}.dump();
}

void TrainJobStatus::run() {
  std::unique_lock lock(mutex_);
  for (bool is_last = false; !is_last;) {
    changed_.wait(lock, [&] { return is_new_ || is_ending_; });
    is_last = is_ending_;
    if (std::exchange(is_new_, false)) {
      const std::string text = body();
      lock.unlock();
      send(text);
      lock.lock();
    }
    changed_.wait_for(lock, kPause, [&] { return is_ending_; });
  }
  has_ended_ = true;
  changed_.notify_all();
}

void TrainJobStatus::send(const std::string& body) {
  try {
    auto made = std::make_unique<HttpClient>();
    made->set_certificates(certificates_);
    if (!token_file_.empty()) {  // read for each request: the token is renewed before it expires
      std::string token = read_file(token_file_);
      token.erase(token.find_last_not_of(" \r\n") + 1);
      made->add_header("Authorization: Bearer " + token);
    }
    {
      const std::lock_guard lock(mutex_);
      client_ = std::move(made);
    }
    const HttpReply reply = client_->send(url_, body);
    if (reply.status / 100 != 2) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format(
              "the status server answered {}: {}", reply.status, reply.body.substr(0, 200)));
    }
  } catch (const Error& error) {
    if (!std::exchange(has_warned_, true)) {
      log_warning(
          "the TrainJob's status cannot be updated; training continues: {}", error.message());
    }
  }
}

}  // namespace lockstep::monitor
