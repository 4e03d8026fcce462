#include "watch/record/rank_times.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "monitor/metrics.h"

namespace lockstep::watch {
namespace {

using monitor::RankShares;

constexpr size_t kEndKept = 64;
constexpr size_t kLately = 16;  // lines

struct Measure {
  const char* name;
  std::vector<double> RankShares::* values;
};
constexpr std::array<Measure, 4> kMeasures = {{
    {"step_s", &RankShares::step_s},
    {"data_wait_s", &RankShares::data_wait_s},
    {"communication_wait_s", &RankShares::communication_wait_s},
    {"memory_bytes", &RankShares::memory_bytes},
}};

/// Nothing of a line that is none, or whose lists are of other lengths.
bool read_shares(std::string_view text, RankShares& shares) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_number = [](const nlohmann::json& value) { return value.is_number(); };
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    return false;
  }
  shares.step = json["step"];
  const auto steps = json.find("steps");
  shares.steps = steps != json.end() && steps->is_number_integer()
                     ? std::max<int64_t>(1, steps->get<int64_t>())
                     : 1;
  size_t ranks = 0;
  for (const Measure& measure : kMeasures) {
    const auto values = json.find(measure.name);
    if (values == json.end() || !values->is_array() || values->empty() ||
        !std::ranges::all_of(*values, is_number) || (ranks != 0 && values->size() != ranks)) {
      return false;
    }
    ranks = values->size();
    shares.*measure.values = values->get<std::vector<double>>();
  }
  return true;
}

}  // namespace

void RankTimes::refresh() {
  std::error_code none;
  const auto size = std::filesystem::file_size(path_, none);
  const MappedFile file = none || size == 0 ? MappedFile() : MappedFile(path_);
  std::string_view text = file.text();
  if (text.size() < end_ || !text.substr(0, end_).ends_with(last_)) {
    *this = RankTimes(path_);
  }
  text.remove_prefix(end_);
  for (size_t newline = text.find('\n'); newline != std::string_view::npos;
       newline = text.find('\n')) {
    take(text.substr(0, newline));
    last_ = text.substr(0, newline + 1);
    last_.erase(0, last_.size() - std::min(last_.size(), kEndKept));
    end_ += newline + 1;
    text.remove_prefix(newline + 1);
  }
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
    waiting_ = 1;  // of the last one's, which was begun just now
    stride_ *= 2;
  }
}

RankShares RankTimes::lately() const {
  RankShares whole;
  for (size_t i = lines_.size() - std::min(lines_.size(), kLately); i < lines_.size(); ++i) {
    monitor::merge_shares(whole, lines_[i]);
  }
  return whole;
}

std::string RankTimes::json() const {
  const size_t ranks = lines_.empty() ? 0 : lines_.back().step_s.size();
  std::string text = fmt::format("{{\"ranks\":{},\"steps\":[", ranks);
  for (size_t i = 0; i < lines_.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", lines_[i].step);
  }
  text += "]";
  for (const Measure& measure : kMeasures) {
    text += fmt::format(",\"{}\":[", measure.name);
    for (size_t rank = 0; rank < ranks; ++rank) {
      text += rank == 0 ? "[" : ",[";
      for (size_t i = 0; i < lines_.size(); ++i) {
        text += (i == 0 ? "" : ",") + monitor::number_text((lines_[i].*measure.values)[rank]);
      }
      text += "]";
    }
    text += "]";
  }
  return text + fmt::format(",\"slow\":{}}}", nlohmann::json(monitor::slow_text(lately())).dump());
}

}  // namespace lockstep::watch
