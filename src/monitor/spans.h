// Spans of OpenTelemetry: each step and its phases, and what lies between steps, as OTLP over HTTP
// in JSON (opentelemetry.io/docs/specs/otlp).
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

/// Sends lines of spans to a collector.
class SpanSender {
 public:
  /// `address`: the collector's, "http://localhost:4318"; `run`: the resource's "lockstep.run".
  SpanSender(const std::string& address, const std::string& run);
  /// As Outbox::Send. Each line is a JSON array of spans.
  void send(const std::vector<std::string>& lines);
  void cancel() { client_.cancel(); }

 private:
  std::string address_, run_;
  HttpClient client_;
};

/// Each step is a trace: the step's span, and its phases' below it. What takes time between steps
/// (evaluations, checkpoints) is a trace of one span. For one thread, which it observes the phases
/// of (base/rank_status.h).
class Spans {
 public:
  Spans(const std::filesystem::path& folder, const std::string& address);
  ~Spans();
  Spans(const Spans&) = delete;
  Spans& operator=(const Spans&) = delete;

  using Numbers = std::vector<std::pair<std::string, double>>;
  /// A step ends now, `seconds` after it began; `wall`: seconds since 1970.
  void step(int64_t step, double seconds, double wall, const Numbers& numbers);
  /// The run has ended.
  void finish(double wall);

 private:
  struct Phase {
    std::string name;
    double begin = 0, end = 0;  // seconds of the steady clock
  };
  void begin_phase(std::string_view name);
  std::string draw_id();

  std::mt19937_64 random_;
  SpanSender sender_;
  Outbox outbox_;
  std::vector<Phase> phases_;  // that have ended
  Phase now_;
};

/// The file of spans that could not be sent.
std::filesystem::path spans_outbox(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
