// What is logged, and the one interface of everything that takes it down.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::monitor {

using Number = std::variant<int64_t, double>;

/// One line of the log: named numbers at a step. NaN and infinity are allowed; a sink that cannot
/// hold them writes null.
struct Record {
  enum class Kind {
    kTraining,    // loss, learning_rate, grad_norm, ...
    kEvaluation,  // eval_loss, eval_perplexity, ...
    kSummary,     // train_runtime, ...: once, at the end
  };
  Kind kind = Kind::kTraining;
  int64_t step = 0;      // optimizer steps done
  double epoch = 0.0;    // fraction of the data seen, in epochs
  double wall_time = 0;  // seconds since 1970
  std::vector<std::pair<std::string, Number>> values{};

  /// The number of that name, as a double; null where there is none.
  const Number* find(std::string_view name) const {
    for (const auto& [key, number] : values) {
      if (key == name) {
        return &number;
      }
    }
    return nullptr;
  }
};

/// The number as a double.
inline double as_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

/// Something to be read: of a prompt what the model made of it.
struct Text {
  int64_t step = 0;
  double wall_time = 0;
  std::string name{};  // "samples/1"
  std::string text{};
};

/// How many values lie where: counts[i] of them between limits[i - 1] and limits[i].
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits{}, counts{};  // as many; ascending
};

struct RankShares;       // monitor/rank_file.h
struct ProgressFigures;  // monitor/progress.h

/// Takes records down: a file, a tracker. Called by rank 0 alone, from one thread. A sink that
/// cannot write throws an Error that names the file and the reason.
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
  /// After every step, logged or not.
  virtual void log_progress(const ProgressFigures& /*figures*/) {}
  /// What the ranks' steps went into.
  virtual void log_ranks(const RankShares& /*shares*/, double /*wall_time*/) {}
  /// Of events.jsonl, by its name (monitor/events.h).
  virtual void log_event(std::string_view /*name*/, double /*wall_time*/) {}
  /// The run ends well; nothing is logged afterwards.
  virtual void finish() {}
};

}  // namespace lockstep::monitor
