// Draws the lines of the terminal monitor.
#include "start/screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <sstream>

#include "base/format.h"
#include "monitor/progress.h"

namespace lockstep::start {
namespace {

constexpr size_t kMargin = 10;  // width of the numbers beside a chart
constexpr size_t kShownEvents = 5;
constexpr std::array<const char*, 5> kFirst = {
    "loss", "eval_loss", "learning_rate", "grad_norm", "tokens_per_s"};

/// Canvas of braille characters with 2 x 4 dots each.
class Dots {
 public:
  Dots(size_t width, size_t height) : width_(width), cells_(width * height) {}
  void set(size_t x, size_t y) {
    constexpr std::array<std::array<uint8_t, 2>, 4> kBits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    cells_.at(y / 4 * width_ + x / 2) |= kBits.at(y % 4).at(x % 2);
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines(cells_.size() / width_);
    for (size_t i = 0; i < cells_.size(); ++i) {
      // UTF-8 encoding of U+2800 plus the bits of the dots.
      const unsigned letter = 0x2800U + cells_[i];
      lines[i / width_] +=
          {static_cast<char>(0xe0U | letter >> 12),
           static_cast<char>(0x80U | (letter >> 6 & 0x3fU)),
           static_cast<char>(0x80U | (letter & 0x3fU))};
    }
    return lines;
  }

 private:
  size_t width_;
  std::vector<uint8_t> cells_;
};

std::string clock_of(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

std::string event_text(const watch::Event& event) {
  std::string text = fmt::format("{} step {} {}", clock_of(event.time), event.step, event.name);
  if (event.name == "slow rank") {
    const double factor = event.fields.value("factor", 0.0);
    text += factor > 0 ? fmt::format(
                             " {}, {:.2f} times, by its",
                             event.fields.value("rank", nlohmann::json()).dump(),
                             factor)
                       : ": no longer present";
  }
  for (const char* const key : {"act", "checkpoint", "by", "error", "metric", "value", "plan"}) {
    if (const auto found = event.fields.find(key); found != event.fields.end()) {
      text += " " + (found->is_string() ? found->get<std::string>() : found->dump());
    }
  }
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string bar(double share, size_t width) {
  const auto full =
      static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  std::string text;
  for (size_t i = 0; i < width; ++i) {
    text += i < full ? "█" : "░";
  }
  return text;
}

}  // namespace

std::vector<std::string> braille_curve(
    const watch::Points& points, size_t width, size_t height, double low, double high) {
  Dots dots(width, height);
  const size_t across = 2 * width, down = 4 * height;
  if (points.steps.empty() || !(high > low)) {
    return dots.lines();
  }
  const auto first = static_cast<double>(points.steps.front());
  const double span = std::max(1.0, static_cast<double>(points.steps.back()) - first);
  const auto x_of = [&](int64_t step) {
    return (static_cast<double>(step) - first) / span * static_cast<double>(across - 1);
  };
  const auto y_of = [&](double value) {
    return (1 - std::clamp((value - low) / (high - low), 0.0, 1.0)) * static_cast<double>(down - 1);
  };
  for (size_t i = 0; i < points.steps.size(); ++i) {
    if (!std::isfinite(points.values[i])) {
      continue;
    }
    const double x = x_of(points.steps[i]), y = y_of(points.values[i]);
    const bool is_joined = i > 0 && std::isfinite(points.values[i - 1]);
    const double from_x = is_joined ? x_of(points.steps[i - 1]) : x;
    const double from_y = is_joined ? y_of(points.values[i - 1]) : y;
    const double dots_between = std::max({std::abs(x - from_x), std::abs(y - from_y), 1.0});
    for (double at = 0; at <= dots_between; ++at) {
      const double share = at / dots_between;
      dots.set(
          static_cast<size_t>(std::lround(from_x + share * (x - from_x))),
          static_cast<size_t>(std::lround(from_y + share * (y - from_y))));
    }
  }
  return dots.lines();
}

std::string cut_to(const std::string& line, size_t width) {
  std::string kept;
  size_t letters = 0;
  for (const char letter : line) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool begins = (byte & 0xc0U) != 0x80U;
    if (begins && ++letters > width) {
      break;
    }
    kept += byte < 0x20U || byte == 0x7fU ? ' ' : letter;
  }
  return kept;
}

RunScreen::RunScreen(const std::filesystem::path& folder)
    : folder_(folder),
      metrics_(folder / "metrics.jsonl"),
      ranks_(folder / monitor::kRanksName) {}

void RunScreen::refresh(double now, const std::string& live) {
  metrics_.look();
  ranks_.refresh();
  summary_ = watch::summarize(folder_, now);
  events_ = watch::read_events(folder_);
  live_ = lines_of(live);
}

std::vector<std::string> RunScreen::metrics() const {
  std::vector<std::string> names;
  for (const char* const name : kFirst) {
    if (metrics_.series().contains(name)) {
      names.emplace_back(name);
    }
  }
  for (const auto& [name, series] : metrics_.series()) {
    if (name != "epoch" && std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> RunScreen::chart(
    size_t width, size_t height, const std::string& metric) const {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  const size_t across = width - kMargin;
  const watch::Points points =
      watch::downsample(metrics_.find(metric), 0, kAll, across, /*weight=*/0);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : points.values) {
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  std::vector<std::string> lines{fmt::format("{} (n, p: another metric)", metric)};
  if (!(low <= high)) {
    lines.emplace_back("no values yet");
    lines.resize(height);
    return lines;
  }
  const double room = high > low ? 0 : std::max(std::abs(high) * 0.01, 1e-12);
  const auto curve = braille_curve(points, across, height - 2, low - room, high + room);
  for (size_t i = 0; i < curve.size(); ++i) {
    const std::string mark = i == 0                  ? fmt::format("{:.4g}", high)
                             : i + 1 == curve.size() ? fmt::format("{:.4g}", low)
                                                     : "";
    lines.push_back(fmt::format("{:>{}} {}", mark, kMargin - 1, curve[i]));
  }
  const std::string first = fmt::format("{:>{}} step {}", "", kMargin - 1, points.steps.front());
  const std::string last = fmt::format("{}", points.steps.back());
  lines.push_back(fmt::format("{}{:>{}}", first, last, width - std::min(width, first.size())));
  return lines;
}

std::vector<std::string> RunScreen::rank_lines(size_t width) const {
  if (!live_.empty()) {
    return live_;
  }
  std::vector<std::string> lines;
  if (ranks_.lines().empty()) {
    return lines;
  }
  const monitor::RankShares& last = ranks_.lines().back();
  for (size_t rank = 0; rank < last.step_s.size(); ++rank) {
    const double step = std::max(last.step_s[rank], 1e-12);
    const double data = last.data_wait_s[rank] / step,
                 others = last.communication_wait_s[rank] / step;
    lines.push_back(fmt::format(
        "rank {:<4} {} own {:3.0f}%  ranks {:3.0f}%  data {:3.0f}%",
        rank,
        bar(1 - data - others, std::min<size_t>(30, width / 3)),
        100 * std::max(0.0, 1 - data - others),
        100 * others,
        100 * data));
  }
  return lines;
}

std::vector<std::string> RunScreen::lines(size_t width, size_t height, size_t metric) const {
  std::string head = fmt::format(
      "{}  step {}{}  {}",
      folder_.string(),
      summary_.step,
      summary_.total_steps > 0 ? fmt::format("/{}", summary_.total_steps) : "",
      end_text(summary_));
  if (summary_.seconds_left) {
    head += fmt::format("  {} left", monitor::format_duration(*summary_.seconds_left));
  }
  if (summary_.goodput) {
    head += fmt::format("  goodput {:.0f}%", 100 * *summary_.goodput);
  }
  std::string numbers;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) {
      numbers += fmt::format("{}{} {:.5g}", numbers.empty() ? "" : "  ", name, *value);
    }
  };
  add("loss", summary_.loss);
  if (summary_.best) {
    add(summary_.best->first.c_str(), summary_.best->second);
  }
  add("lr", summary_.learning_rate);
  add("tokens/s", summary_.tokens_per_s);
  add("step s", summary_.step_s);

  std::vector<std::string> ranks = rank_lines(width);
  const size_t below = height > 16 ? height - 16 : 2;  // lines available for ranks and events
  const size_t events = std::min({events_.size(), kShownEvents, std::max<size_t>(1, below / 2)});
  const size_t most_ranks = std::max<size_t>(1, below > events ? below - events : 1);
  if (ranks.size() > most_ranks) {
    const size_t hidden = ranks.size() - most_ranks + 1;
    ranks.resize(most_ranks - 1);
    ranks.push_back(fmt::format("... {} more lines: lockstep monitor --text", hidden));
  }
  std::vector<std::string> all{head, numbers};
  const size_t chart_height =
      std::max<size_t>(4, height - std::min(height, 3 + ranks.size() + events));
  const std::vector<std::string> names = metrics();
  const auto curve = names.empty() ? std::vector<std::string>{"no metrics yet"}
                                   : chart(width, chart_height, names[metric % names.size()]);
  all.insert(all.end(), curve.begin(), curve.end());
  all.insert(all.end(), ranks.begin(), ranks.end());
  for (size_t i = events_.size() - events; i < events_.size(); ++i) {
    all.push_back(event_text(events_[i]));
  }
  all.resize(height - 1);
  all.emplace_back("q: end   n, p: metric   up, down: run");
  for (std::string& line : all) {
    line = cut_to(line, width);
  }
  return all;
}

}  // namespace lockstep::start
