// What the user watches: one line redrawn in place on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::monitor {

/// The figures of the line. What is not known is left out of it.
struct ProgressFigures {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  std::optional<double> grad_norm{};
  std::optional<double> tokens_per_s{};         // all ranks
  std::optional<double> peak_share{};           // of the matrix-product peak, 0 to 1
  std::optional<int64_t> memory_bytes{};        // of this rank, at its peak
  std::optional<double> data_share{};           // of the time, waiting for data, 0 to 1
  std::optional<double> communication_share{};  // of the time, waiting for other ranks, 0 to 1
  std::optional<double> seconds_left{};
};

/// The line in at most `width` columns (0: no limit). Figures keep their columns from step to step;
/// where the width does not hold all, the least telling ones go first.
std::string format_progress(const ProgressFigures& figures, int width);
/// "1:02:03", "02:03"; "2d 03h" of more than a day.
std::string format_duration(double seconds);
/// "1.5 GiB", "640 MiB".
std::string format_bytes(int64_t bytes);
/// "950", "12.3k", "4.56M": three digits.
std::string format_count(double count);

/// The columns of the terminal that shows standard error: of the terminal itself, else what
/// LOCKSTEP_TERMINAL_WIDTH says (the supervisor sets it for workers, whose standard error is a pipe
/// to it). Nothing where no terminal shows.
std::optional<int> terminal_width();

/// Draws it on standard error. For rank 0.
class Progress {
 public:
  enum class Style { kAuto, kTerminal, kPlain, kSilent };
  /// `width`: the columns with kTerminal where no terminal tells its own.
  explicit Progress(Style style = Style::kAuto, int width = 80);
  /// Leaves the last line on the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After every step. On a terminal the line is redrawn, ten times a second at most; elsewhere a
  /// line is printed where `logged`. `now`: seconds of any clock.
  void update(const ProgressFigures& figures, bool logged, double now);
  /// Something else goes on ("evaluating 12/40", "saving checkpoint-100"): on a terminal it stands
  /// in the line's place until the next update.
  void activity(const std::string& text, double now);
  /// The last state is drawn, whatever the time, and stays.
  void finish();

 private:
  /// Of the terminal now: it may have been resized.
  int width() const;

  Style style_;
  int fallback_width_;
  std::optional<ProgressFigures> pending_{};  // of an update that came too soon
  double drawn_ = -1e9;
};

}  // namespace lockstep::monitor
