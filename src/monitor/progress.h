// Shows progress: one line that is redrawn in place on a terminal, otherwise plain lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::monitor {

/// Values of the progress line. Unknown values are omitted.
struct ProgressFigures {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  std::optional<double> grad_norm{};
  std::optional<double> tokens_per_s{};         // over all ranks
  std::optional<double> peak_share{};           // fraction of peak FLOP/s (MFU), 0 to 1
  std::optional<int64_t> memory_bytes{};        // peak of this rank
  std::optional<double> data_share{};           // fraction of time spent waiting for data, 0 to 1
  std::optional<double> communication_share{};  // fraction of time spent waiting for other ranks
  std::optional<double> seconds_left{};
};

/// Formats the line with at most `width` columns (0: no limit). Items keep their columns from step
/// to step. If the line is too long, the least important items are omitted.
std::string format_progress(const ProgressFigures& figures, int width);
/// Formats a duration: "1:02:03" or "02:03", or "2d 03h" for more than a day.
std::string format_duration(double seconds);
/// Formats a size: "1.5 GiB", "640 MiB".
std::string format_bytes(int64_t bytes);
/// Formats a count with three digits: "950", "12.3k", "4.56M".
std::string format_count(double count);

/// Returns the width of the terminal that shows standard error. If standard error is not a
/// terminal, returns the value of LOCKSTEP_TERMINAL_WIDTH, which the launcher sets for workers that
/// write to a pipe. Returns nullopt if there is no terminal.
std::optional<int> terminal_width();

/// Draws the progress line on standard error. Only used on rank 0.
class Progress {
 public:
  enum class Style { kAuto, kTerminal, kPlain, kSilent };
  /// `width` is the number of columns for kTerminal if the terminal does not report it.
  explicit Progress(Style style = Style::kAuto, int width = 80);
  /// Leaves the last line on the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Updates the line after a step. On a terminal, it is redrawn at most ten times per second.
  /// Otherwise a line is printed if `logged` is true. `now` is in seconds of any clock.
  void update(const ProgressFigures& figures, bool logged, double now);
  /// Shows another activity, such as "evaluating 12/40" or "saving checkpoint-100". On a terminal,
  /// it replaces the line until the next update.
  void activity(const std::string& text, double now);
  /// Draws the final state, which remains visible.
  void finish();

 private:
  /// Returns the current width of the terminal, which may have been resized.
  int width() const;

  Style style_;
  int fallback_width_;
  std::optional<ProgressFigures> pending_{};  // update that was skipped, to be drawn later
  double drawn_ = -1e9;
};

}  // namespace lockstep::monitor
