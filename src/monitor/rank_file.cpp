#include "monitor/rank_file.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/format.h"
#include "monitor/metrics.h"

namespace lockstep::monitor {
namespace {

/// With the digits that a picture can show.
std::string list_of(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    text += fmt::format("{}{:.4g}", text.size() > 1 ? ", " : "", value);
  }
  return text + "]";
}

constexpr double kSlow = 1.2;  // times the median

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

std::optional<SlowRank> slow_rank(const RankShares& shares) {
  const size_t ranks = shares.step_s.size();
  if (ranks < 2) {
    return std::nullopt;
  }
  std::vector<double> busy;
  for (size_t rank = 0; rank < ranks; ++rank) {
    busy.push_back(std::max(0.0, shares.step_s[rank] - shares.communication_wait_s[rank]));
  }
  const auto slowest = static_cast<size_t>(std::ranges::max_element(busy) - busy.begin());
  const double usual = median(busy), more = busy[slowest] - usual;
  if (usual <= 0 || busy[slowest] < kSlow * usual) {
    return std::nullopt;
  }
  const double for_data = shares.data_wait_s[slowest] - median(shares.data_wait_s);
  return SlowRank{slowest, busy[slowest] / usual, for_data > more / 2};
}

std::string slow_text(const RankShares& shares) {
  if (shares.step_s.size() < 2) {
    return "";
  }
  const auto slow = slow_rank(shares);
  if (!slow) {
    return fmt::format("no rank is slower than {} times the median", kSlow);
  }
  return fmt::format(
      "rank {} is slow: without waiting for others a step takes {:.2f} times the median there, by "
      "its {}",
      slow->rank,
      slow->factor,
      slow->by_data ? "data" : "own work");
}

void merge_shares(RankShares& first, const RankShares& second) {
  if (first.steps == 0) {
    first = second;
    return;
  }
  const auto a = static_cast<double>(first.steps), b = static_cast<double>(second.steps);
  for (const auto list :
       {&RankShares::step_s, &RankShares::data_wait_s, &RankShares::communication_wait_s}) {
    for (size_t i = 0; i < (first.*list).size(); ++i) {
      (first.*list)[i] = ((first.*list)[i] * a + (second.*list)[i] * b) / (a + b);
    }
  }
  for (size_t i = 0; i < first.memory_bytes.size(); ++i) {
    first.memory_bytes[i] = std::max(first.memory_bytes[i], second.memory_bytes[i]);
  }
  first.step = second.step;
  first.steps += second.steps;
}

RankFile::RankFile(const std::filesystem::path& folder, int64_t after)
    : file_(open_lines_after(folder / kRanksName, after)),
      end_(file_.size()) {}

void RankFile::log(const RankShares& shares) {
  const std::string line = fmt::format(
      "{{\"step\": {}, \"steps\": {}, \"step_s\": {}, \"data_wait_s\": {}, "
      "\"communication_wait_s\": {}, \"memory_bytes\": {}}}\n",
      shares.step,
      shares.steps,
      list_of(shares.step_s),
      list_of(shares.data_wait_s),
      list_of(shares.communication_wait_s),
      list_of(shares.memory_bytes));
  file_.write_at(end_, std::as_bytes(std::span(line)));
  end_ += line.size();
}

}  // namespace lockstep::monitor
