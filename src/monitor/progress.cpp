// Formats and draws the progress line.
#include "monitor/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/format.h"
#include "base/log.h"
#include "base/terminal.h"

namespace lockstep::monitor {
namespace {

constexpr std::array<const char*, 5> kByteUnits{"B", "KiB", "MiB", "GiB", "TiB"};
constexpr std::array<const char*, 5> kCountUnits{"", "k", "M", "G", "T"};
/// Metrics that only files and trackers receive, by the beginning of their names.
constexpr std::array<std::string_view, 6> kHidden{
    "mixture/", "expert_", "router_", "logps/", "rewards/chosen", "rewards/rejected"};
/// Maximum number of metrics on a line.
constexpr size_t kMostFigures = 6;
/// Minimum time between two redraws.
constexpr double kRedrawSeconds = 0.1;

/// Item of the line. Items with the highest `rank` are omitted first.
struct Figure {
  int rank;
  std::string text;
};

std::string percent(double share) {
  return fmt::format("{:.0f}%", 100.0 * std::clamp(share, 0.0, 9.99));
}

/// Formats a loss with four decimals if it is below 1000.
std::string loss_text(double loss) {
  return std::abs(loss) < 1000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

/// Formats a metric with about three significant digits.
std::string figure_text(double value) {
  const double size = std::abs(value);
  return size >= 1000                ? fmt::format("{:.4g}", value)
         : size >= 1                 ? fmt::format("{:#.4g}", value)
         : size >= 1e-3 || size == 0 ? fmt::format("{:.3f}", value)
                                     : fmt::format("{:.3g}", value);
}

/// Returns the items in display order, each padded to its typical width.
std::vector<Figure> figures_of(const ProgressFigures& p) {
  std::vector<Figure> list;
  const std::string total = std::to_string(p.total_steps);
  list.push_back(
      {0,
       p.total_steps > 0 ? fmt::format("step {:>{}}/{}", p.step, total.size(), total)
                         : fmt::format("step {}", p.step)});
  list.push_back({1, fmt::format("loss {:<7}", loss_text(p.loss))});
  size_t shown = 0;
  for (const auto& [name, value] : p.metrics) {
    if (is_shown(name) && shown++ < kMostFigures) {
      list.push_back({4, fmt::format("{} {:<6}", name, figure_text(value))});
    }
  }
  list.push_back({4, fmt::format("lr {:.2e}", p.learning_rate)});
  if (p.grad_norm) {
    list.push_back({5, fmt::format("norm {:<6}", fmt::format("{:.3g}", *p.grad_norm))});
  }
  if (p.tokens_per_s) {
    list.push_back({3, fmt::format("{:>5} tok/s", format_count(*p.tokens_per_s))});
  }
  if (p.peak_share) {
    list.push_back({7, fmt::format("{:>3} of peak", percent(*p.peak_share))});
  }
  if (p.memory_bytes) {
    list.push_back({6, fmt::format("{:>8}", format_bytes(*p.memory_bytes))});
  }
  if (p.data_share) {
    list.push_back({8, fmt::format("data {:>3}", percent(*p.data_share))});
  }
  if (p.communication_share) {
    list.push_back({9, fmt::format("comm {:>3}", percent(*p.communication_share))});
  }
  if (p.seconds_left) {
    list.push_back({2, fmt::format("{} left", format_duration(*p.seconds_left))});
  }
  return list;
}

std::string joined(const std::vector<Figure>& list, int highest_rank) {
  std::string line;
  for (const Figure& figure : list) {
    if (figure.rank <= highest_rank) {
      line += line.empty() ? "" : "  ";
      line += figure.text;
    }
  }
  while (line.ends_with(' ')) {
    line.pop_back();
  }
  return line;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) {
    return "?";
  }
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 86400) {
    return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
  }
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

std::string format_bytes(int64_t bytes) {
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kByteUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit > 2 && value < 99.95 ? fmt::format("{:.1f} {}", value, kByteUnits[unit])
                                   : fmt::format("{:.0f} {}", value, kByteUnits[unit]);
}

std::string format_count(double count) {
  size_t unit = 0;
  while (count >= 999.5 && unit + 1 < kCountUnits.size()) {
    count /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, decimals, kCountUnits[unit]);
}

bool is_shown(std::string_view metric) {
  return std::ranges::none_of(
      kHidden, [&](std::string_view hidden) { return metric.starts_with(hidden); });
}

std::string format_evaluation(const EvaluationFigures& figures) {
  std::string line = fmt::format("{}  step {}", figures.set, figures.step);
  if (figures.total_steps > 0) {
    line += fmt::format("/{}", figures.total_steps);
  }
  line += figures.training;
  const bool is_small = std::abs(figures.loss) < 1;
  line += fmt::format(
      "  {} {}",
      figures.loss_name,
      is_small ? fmt::format("{:.4f}", figures.loss) : figure_text(figures.loss));
  size_t shown = 0;
  for (const auto& [name, value] : figures.metrics) {
    if (is_shown(name) && shown++ < kMostFigures) {
      const std::string_view short_name =
          name == "token_accuracy" ? std::string_view("accuracy") : std::string_view(name);
      line += fmt::format("  {} {}", short_name, figure_text(value));
    }
  }
  line += figures.is_best ? "  best" : "";
  line += fmt::format("  ({:.{}f} s)", figures.seconds, figures.seconds < 10 ? 1 : 0);
  return line;
}

std::string format_progress(const ProgressFigures& figures, int width) {
  const std::vector<Figure> list = figures_of(figures);
  int rank = 9;
  std::string line = joined(list, rank);
  while (width > 0 && line.size() > static_cast<size_t>(width) && rank > 0) {
    line = joined(list, --rank);
  }
  if (width > 0 && line.size() > static_cast<size_t>(width)) {
    line.resize(static_cast<size_t>(width));
  }
  return line;
}

std::optional<int> terminal_width() {
  if (::isatty(STDERR_FILENO) != 0) {
    if (!has_control_sequences(STDERR_FILENO)) {
      return std::nullopt;
    }
    struct winsize size{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
  }
  const char* const told = std::getenv("LOCKSTEP_TERMINAL_WIDTH");
  const int width = told == nullptr ? 0 : std::atoi(told);
  return width > 0 ? std::optional(width) : std::nullopt;
}

Progress::Progress(Style style, int width) : style_(style), fallback_width_(width) {
  if (style_ == Style::kAuto) {
    style_ = terminal_width() ? Style::kRich : Style::kPlain;
  }
}

Progress::~Progress() {
  finish();
}

int Progress::width() const {
  // Leave the last column empty, because some terminals wrap when it is written.
  return std::max(1, terminal_width().value_or(fallback_width_) - 1);
}

void Progress::update(const ProgressFigures& figures, bool logged, double now) {
  last_ = figures;
  last_printed_ = logged && (style_ == Style::kPlain || style_ == Style::kRich);
  if (last_printed_) {
    write_lines(format_progress(figures, is_live() ? width() : 0) + "\n");
  }
  if (!is_live()) {
    return;
  }
  if (now - drawn_ < kRedrawSeconds) {
    pending_ = figures;
    return;
  }
  pending_.reset();
  drawn_ = now;
  line_ = format_progress(figures, width());
  set_status_line(line_);
}

void Progress::activity(const std::string& text, double now) {
  if (!is_live()) {
    return;
  }
  drawn_ = now - kRedrawSeconds;  // redraw at the next update
  set_status_line(text.substr(0, static_cast<size_t>(width())));
}

void Progress::print(const std::string& line) {
  if (style_ == Style::kSilent || style_ == Style::kJson) {
    return;
  }
  write_lines(line + "\n");
  if (is_live() && last_) {  // replaces the activity
    pending_.reset();
    set_status_line(format_progress(*last_, width()));
  }
}

void Progress::finish() {
  if (!is_live()) {
    return;
  }
  if (last_printed_) {
    pending_.reset();
    set_status_line("");
    return;
  }
  if (pending_) {
    line_ = format_progress(*pending_, width());
    pending_.reset();
  }
  set_status_line(line_);  // an activity is not kept
  if (!line_.empty()) {
    keep_status_line();
    line_.clear();
  }
}

}  // namespace lockstep::monitor
