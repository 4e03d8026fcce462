// OpenTelemetry spans of steps, their phases and the time between steps. They are sent with OTLP
// over HTTP as JSON (opentelemetry.io/docs/specs/otlp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "monitor/http_client.h"
#include "monitor/outbox.h"

namespace lockstep::monitor {

/// Sends lines with spans to a collector.
class SpanSender {
 public:
  /// `address` is that of the collector, such as "http://localhost:4318". `run` is the value of the
  /// resource attribute "lockstep.run".
  SpanSender(const std::string& address, const std::string& run);
  /// Implements Outbox::Send. Each line is a JSON array of spans.
  void send(const std::vector<std::string>& lines);
  void cancel() { client_.cancel(); }

 private:
  std::string address_, run_;
  HttpClient client_;
};

/// Creates one trace per step, with the step's span as root and its phases as children. Activities
/// between steps (evaluations, checkpoints) become traces of a single span. Must be used on the
/// thread whose phases it observes (base/rank_status.h).
class Spans {
 public:
  Spans(const std::filesystem::path& folder, const std::string& address);
  ~Spans();
  Spans(const Spans&) = delete;
  Spans& operator=(const Spans&) = delete;

  using Numbers = std::vector<std::pair<std::string, double>>;
  /// Ends a step that started `seconds` ago. `wall` is in seconds since 1970.
  void step(int64_t step, double seconds, double wall, const Numbers& numbers);
  /// Ends the run.
  void finish(double wall);

 private:
  struct Phase {
    std::string name;
    double begin = 0, end = 0;  // in seconds of the monotonic clock
  };
  void begin_phase(std::string_view name);
  std::string draw_id();

  std::mt19937_64 random_;
  SpanSender sender_;
  Outbox outbox_;
  std::vector<Phase> phases_;  // phases that have ended
  Phase now_;
};

/// Returns the path of the file with unsent spans.
std::filesystem::path spans_outbox(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
