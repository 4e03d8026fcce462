// Progress display: one line redrawn in place on a terminal, plain lines otherwise.
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
  std::optional<double> tokens_per_s{};   // over all ranks
  std::optional<double> peak_share{};     // fraction of peak FLOP/s (MFU), 0 to 1
  std::optional<int64_t> memory_bytes{};  // peak of this rank
  std::optional<double> data_share{};     // fraction of time spent waiting for data, 0 to 1
  std::optional<double>
      communication_share{};  // fraction of time spent waiting for other ranks, 0 to 1
  std::optional<double> seconds_left{};
};

/// Formats the line with at most `width` columns (0: no limit). Items keep their columns from step
/// to step. If the line is too long, the least important items are dropped first.
std::string format_progress(const ProgressFigures& figures, int width);
/// Formats a duration: "1:02:03", "02:03", or "2d 03h" for more than a day.
std::string format_duration(double seconds);
/// Formats a size: "1.5 GiB", "640 MiB".
std::string format_bytes(int64_t bytes);
/// Formats a count with three digits: "950", "12.3k", "4.56M".
std::string format_count(double count);

/// Returns the width of the terminal that shows standard error. If standard error is not a
/// terminal, reads LOCKSTEP_TERMINAL_WIDTH, which the launcher sets for workers whose standard
/// error is a pipe to it. nullopt if there is no terminal.
std::optional<int> terminal_width();

/// Draws the progress line on standard error. Used by rank 0 only.
class Progress {
 public:
  enum class Style { kAuto, kTerminal, kPlain, kSilent };
  /// `width`: columns used with kTerminal if the terminal does not report its width.
  explicit Progress(Style style = Style::kAuto, int width = 80);
  /// Leaves the last line on the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Updates the line after a step. On a terminal it is redrawn at most ten times per second.
  /// Otherwise a line is printed if `logged`. `now`: seconds of any clock.
  void update(const ProgressFigures& figures, bool logged, double now);
  /// Shows another activity ("evaluating 12/40", "saving checkpoint-100"). On a terminal it
  /// replaces the line until the next update.
  void activity(const std::string& text, double now);
  /// Draws the last update, which remains visible. An activity does not.
  void finish();

 private:
  /// Returns the current width of the terminal, which may have been resized.
  int width() const;

  Style style_;
  int fallback_width_;
  std::optional<ProgressFigures> pending_{};  // skipped update, drawn later
  std::string line_{};                        // the steps' line on the screen, if any
  double drawn_ = -1e9;
};

}  // namespace lockstep::monitor
