// Log records, and the interface of all destinations of metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::monitor {

using Number = std::variant<int64_t, double>;

/// Log line: named numbers at a step. NaN and infinity are allowed. Destinations whose format does
/// not support them write null.
struct Record {
  enum class Kind {
    kTraining,    // loss, learning_rate, grad_norm, ...
    kEvaluation,  // eval_loss, eval_perplexity, ...
    kSummary,     // train_runtime, ...; once, at the end of the run
  };
  Kind kind = Kind::kTraining;
  int64_t step = 0;      // completed optimizer steps
  double epoch = 0.0;    // passes over the data, may be fractional
  double wall_time = 0;  // seconds since 1970
  std::vector<std::pair<std::string, Number>> values{};

  /// Returns the number with this name, or null.
  const Number* find(std::string_view name) const {
    for (const auto& [key, number] : values) {
      if (key == name) {
        return &number;
      }
    }
    return nullptr;
  }
};

/// Converts a number to double.
inline double as_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

/// Text record, such as a prompt with generated text.
struct Text {
  int64_t step = 0;
  double wall_time = 0;
  std::string name{};  // "samples/1"
  std::string text{};
};

/// Histogram. counts[i] is the number of values between limits[i - 1] and limits[i].
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits{}, counts{};  // of equal length; limits are ascending
};

struct RankShares;       // monitor/rank_file.h
struct ProgressFigures;  // monitor/progress.h

/// Destination of records: a file or a tracker. Called on rank 0, always on the same thread. If
/// writing fails, throws Error with the name of the file and the reason.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void log(const Record& record) = 0;
  virtual void log_text(const Text& /*text*/) {}
  virtual void log_histogram(
      int64_t /*step*/,
      double /*wall_time*/,
      const std::string& /*name*/,
      const Histogram& /*values*/) {}
  /// Called after every step, even if it is not logged.
  virtual void log_progress(const ProgressFigures& /*figures*/) {}
  /// Logs the breakdown of the ranks' step times.
  virtual void log_ranks(const RankShares& /*shares*/, double /*wall_time*/) {}
  /// Logs an event of events.jsonl by name (monitor/events.h).
  virtual void log_event(std::string_view /*name*/, double /*wall_time*/) {}
  /// Called when the run ends successfully. Nothing is logged afterwards.
  virtual void finish() {}
};

}  // namespace lockstep::monitor
