// Reads ranks.jsonl incrementally and merges the entries of long runs.
#include "watch/record/rank_times.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json_lines.h"
#include "monitor/metrics.h"

namespace lockstep::watch {
namespace {

using monitor::RankShares;

constexpr size_t kLately = 16;        // minimum number of lines
constexpr int64_t kLatelySteps = 50;  // minimum number of steps

/// Parses a line. Returns false if it is invalid or its lists have different lengths.
bool read_shares(std::string_view text, RankShares& shares) {
  const nlohmann::json json = parse_json_line(text);
  const auto is_number = [](const nlohmann::json& value) { return value.is_number(); };
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    return false;
  }
  shares.step = json["step"];
  const auto steps = json.find("steps");
  shares.steps = steps != json.end() && steps->is_number_integer()
                     ? std::max<int64_t>(1, steps->get<int64_t>())
                     : 1;
  const auto read = [&](const char* name, std::vector<double>& into) {
    const auto values = json.find(name);
    if (values == json.end() || !values->is_array() || values->empty() ||
        !std::ranges::all_of(*values, is_number)) {
      return false;
    }
    into = values->get<std::vector<double>>();
    return into.size() == json["step_s"].size();
  };
  const auto is_new = [](std::string_view name) {  // missing in older files
    return name == "checkpoint_s" || name == "moving_s";
  };
  if (!json.contains("step_s") || !read("memory_bytes", shares.memory_bytes)) {
    return false;
  }
  for (const auto& [name, list] : monitor::kRankMeans) {
    if (is_new(name) && !json.contains(name)) {
      (shares.*list).resize(shares.memory_bytes.size());
    } else if (!read(name, shares.*list)) {
      return false;
    }
  }
  std::vector<double> stages;
  if (json.contains("stages") && read("stages", stages)) {
    shares.stages.assign(stages.begin(), stages.end());
  }
  return true;
}

}  // namespace

void RankTimes::refresh() {
  file_.read(
      [&] {
        lines_.clear();
        stride_ = 1;
        waiting_ = 0;
      },
      [&](std::string_view lines) {
        while (!lines.empty()) {
          const size_t end = std::min(lines.find('\n'), lines.size());
          take(lines.substr(0, end));
          lines.remove_prefix(std::min(end + 1, lines.size()));
        }
      });
}

void RankTimes::take(std::string_view line) {
  RankShares shares;
  if (!read_shares(line, shares)) {
    return;
  }
  if (!lines_.empty() && lines_.back().step_s.size() != shares.step_s.size()) {
    lines_.clear();
    stride_ = 1;
    waiting_ = 0;
  }
  if (waiting_ > 0 && waiting_ < stride_) {
    monitor::merge_shares(lines_.back(), shares);
    waiting_ = (waiting_ + 1) % stride_;
    return;
  }
  lines_.push_back(std::move(shares));
  waiting_ = 1 % stride_;
  if (lines_.size() > kMost) {
    std::vector<RankShares> halved;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (i % 2 == 0) {
        halved.push_back(std::move(lines_[i]));
      } else {
        monitor::merge_shares(halved.back(), lines_[i]);
      }
    }
    lines_ = std::move(halved);
    waiting_ = 1;  // lines merged into the last entry, which was just started
    stride_ *= 2;
  }
}

RankShares RankTimes::lately() const {
  RankShares whole;
  size_t first = lines_.size();
  for (int64_t steps = 0; first > 0 && (lines_.size() - first < kLately || steps < kLatelySteps);) {
    steps += lines_[--first].steps;
  }
  for (; first < lines_.size(); ++first) {
    monitor::merge_shares(whole, lines_[first]);
  }
  return whole;
}

std::vector<double> RankTimes::usual_compute() const {
  std::vector<std::vector<double>> parts;
  for (const RankShares& line : lines_) {
    parts.push_back(monitor::compute_of(line));
  }
  return monitor::usual_compute(parts);
}

std::string RankTimes::json() const {
  const size_t ranks = lines_.empty() ? 0 : lines_.back().step_s.size();
  std::string text = fmt::format("{{\"ranks\":{},\"steps\":[", ranks);
  for (size_t i = 0; i < lines_.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", lines_[i].step);
  }
  text += "]";
  const auto add = [&](const char* name, std::vector<double> RankShares::* list) {
    text += fmt::format(",\"{}\":[", name);
    for (size_t rank = 0; rank < ranks; ++rank) {
      text += rank == 0 ? "[" : ",[";
      for (size_t i = 0; i < lines_.size(); ++i) {
        text += (i == 0 ? "" : ",") + monitor::number_text((lines_[i].*list)[rank]);
      }
      text += "]";
    }
    text += "]";
  };
  for (const auto& [name, list] : monitor::kRankMeans) {
    add(name, list);
  }
  add("memory_bytes", &RankShares::memory_bytes);
  return text + fmt::format(
                    ",\"slow\":{}}}",
                    nlohmann::json(monitor::slow_text(lately(), usual_compute())).dump());
}

}  // namespace lockstep::watch
