// Progress display: lines about logged steps and evaluations, and on a terminal a live line below.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::monitor {

/// Values of the progress line. Unknown values are omitted, and metrics that is_shown() excludes.
struct ProgressFigures {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0.0;  // mean since the last logged step
  double learning_rate = 0.0;
  std::optional<double> grad_norm{};
  std::vector<std::pair<std::string, double>> metrics{};  // means since the last logged step
  std::optional<double> tokens_per_s{};                   // over all ranks
  std::optional<double> peak_share{};                     // fraction of peak FLOP/s (MFU), 0 to 1
  std::optional<int64_t> memory_bytes{};                  // peak of this rank
  std::optional<double> data_share{};  // fraction of time spent waiting for data, 0 to 1
  std::optional<double>
      communication_share{};  // fraction of time spent waiting for other ranks, 0 to 1
  std::optional<double> seconds_left{};
};

/// Values of the line about an evaluation.
struct EvaluationFigures {
  std::string set = "eval";  // evaluated set: "eval", "test", "eval_mm"
  std::string loss_name = "eval_loss";
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0.0;
  std::vector<std::pair<std::string, double>> metrics{};
  std::string training{};  // values of the training since the last evaluation, as text
  bool is_best = false;    // best evaluation of the run so far
  double seconds = 0;
};

/// Formats an evaluation: "eval  step 40/60  eval_loss 6.325  perplexity 558.5  best  (26 s)".
/// Omits metrics that is_shown() excludes.
std::string format_evaluation(const EvaluationFigures& figures);
/// Returns false for metrics that only files and trackers receive, such as the parts of a margin.
bool is_shown(std::string_view metric);
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
  enum class Style {
    kAuto,    // kRich on a terminal, otherwise kPlain
    kRich,    // logged steps stay above a live line
    kBar,     // a live line only
    kPlain,   // a line per logged step
    kJson,    // nothing: Monitor writes JSON to standard output instead
    kSilent,  // nothing
  };
  /// `width`: columns of the live line if the terminal does not report its width.
  explicit Progress(Style style = Style::kAuto, int width = 80);
  /// Leaves the last step on the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Updates the live line after a step, at most ten times per second, and prints a line if the
  /// step is `logged`, depending on the style. `now`: seconds of any clock.
  void update(const ProgressFigures& figures, bool logged, double now);
  /// Shows another activity, such as "evaluating 12/40" or "saving checkpoint-100". On a terminal,
  /// it replaces the line until the next update.
  void activity(const std::string& text, double now);
  /// Prints a permanent line; on a terminal, above the progress line.
  void print(const std::string& line);
  /// Removes the live line, or leaves it on the screen if the last step was not printed.
  void finish();

 private:
  bool is_live() const { return style_ == Style::kRich || style_ == Style::kBar; }
  /// Returns the current width of the terminal, which may have been resized.
  int width() const;

  Style style_;
  int fallback_width_;
  std::optional<ProgressFigures> pending_{};  // skipped update, drawn later
  std::optional<ProgressFigures> last_{};     // last update
  bool last_printed_ = false;                 // as a permanent line
  std::string line_{};                        // the steps' line on the screen, if any
  double drawn_ = -1e9;
};

}  // namespace lockstep::monitor
