// Writes ranks.jsonl and detects stragglers.
#include "monitor/rank_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/format.h"

namespace lockstep::monitor {
namespace {

/// Formats values with as many digits as plots need.
std::string list_of(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    text += fmt::format("{}{:.4g}", text.size() > 1 ? ", " : "", value);
  }
  return text + "]";
}

constexpr double kSlow = 1.2;  // multiple of the median

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Returns each rank's time in excess of the median over the ranks of the same kind (pipeline
/// stage). A rank that is the only one of its kind is compared with its own usual time in `own`.
std::vector<double> excess_of(
    const std::vector<double>& values,
    const std::vector<int>& kinds,
    const std::vector<double>& own) {
  const auto kind = [&](size_t rank) { return kinds.empty() ? 0 : kinds.at(rank); };
  std::map<int, std::vector<double>> alike;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    alike[kind(rank)].push_back(values[rank]);
  }
  // Ignore a slowdown that all ranks have in common.
  double common = own.size() == values.size() && !own.empty() ? HUGE_VAL : 0;
  for (size_t rank = 0; rank < values.size() && common > 0; ++rank) {
    common = own[rank] > 0 ? std::min(common, std::max(1.0, values[rank] / own[rank])) : 0;
  }
  std::map<int, double> usual;
  std::vector<double> excess;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    std::vector<double>& all = alike.at(kind(rank));
    if (all.size() == 1 && common > 0) {
      excess.push_back(values[rank] - own[rank] * common);
      continue;
    }
    const auto [found, is_new] = usual.try_emplace(kind(rank), 0);
    if (is_new) {
      found->second = median(all);
    }
    excess.push_back(values[rank] - found->second);
  }
  return excess;
}

}  // namespace

std::vector<double> compute_of(const RankShares& shares) {
  std::vector<double> compute;
  for (size_t rank = 0; rank < shares.step_s.size(); ++rank) {
    compute.push_back(std::max(
        0.0, shares.step_s[rank] - shares.communication_wait_s[rank] - shares.data_wait_s[rank]));
  }
  return compute;
}

std::vector<double> usual_compute(const std::vector<std::vector<double>>& before) {
  std::vector<double> usual;
  for (size_t rank = 0; before.size() >= kUsualParts && rank < before.front().size(); ++rank) {
    std::vector<double> values;
    for (const std::vector<double>& part : before) {
      values.push_back(part.at(rank));
    }
    usual.push_back(median(std::move(values)));
  }
  return usual;
}

std::optional<SlowRank> slow_rank(const RankShares& shares, const std::vector<double>& own) {
  const size_t ranks = shares.step_s.size();
  if (ranks < 2) {
    return std::nullopt;
  }
  std::vector<double> moving;
  for (size_t rank = 0; rank < ranks; ++rank) {
    // Count only communication that does not overlap computation.
    moving.push_back(std::min(shares.moving_s[rank], shares.communication_wait_s[rank]));
  }
  const std::vector<double> compute = compute_of(shares);
  const std::array parts{
      compute, shares.data_wait_s, shares.checkpoint_s, moving};  // in the order of By
  std::array<std::vector<double>, parts.size()> excess;
  for (size_t part = 0; part < parts.size(); ++part) {
    const bool by_stage = part == 0 && !shares.stages.empty();
    excess[part] =
        by_stage ? excess_of(parts[part], shares.stages, own) : excess_of(parts[part], {}, {});
  }
  std::optional<SlowRank> slowest;
  for (size_t rank = 0; rank < ranks; ++rank) {
    double takes = 0, more = 0;
    size_t most = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      takes += parts[part][rank];
      more += excess[part][rank];
      most = excess[part][rank] > excess[most][rank] ? part : most;
    }
    const double factor = takes > more ? takes / (takes - more) : 1;
    if (factor >= (slowest ? slowest->factor : kSlow)) {
      slowest = {rank, factor, static_cast<SlowRank::By>(most)};
    }
  }
  return slowest;
}

std::string_view name_of(SlowRank::By by) {
  return by == SlowRank::By::kData         ? "data"
         : by == SlowRank::By::kCheckpoint ? "checkpoint"
         : by == SlowRank::By::kCompute    ? "compute"
                                           : "communication";
}

std::string slow_text(const RankShares& shares, const std::vector<double>& own) {
  if (shares.step_s.size() < 2) {
    return "";
  }
  const auto slow = slow_rank(shares, own);
  if (!slow) {
    return fmt::format("no rank is slower than {} times the usual time", kSlow);
  }
  return fmt::format(
      "rank {} is slowed by its {}: without waiting for other ranks, a step takes {:.2f} times the "
      "usual time",
      slow->rank,
      name_of(slow->by),
      slow->factor);
}

void merge_shares(RankShares& first, const RankShares& second) {
  if (first.steps == 0) {
    first = second;
    return;
  }
  const auto a = static_cast<double>(first.steps), b = static_cast<double>(second.steps);
  for (const auto& [name, list] : kRankMeans) {
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
    : file_(LineFile::after_step(folder / kRanksName, after)) {}

void RankFile::log(const RankShares& shares) {
  std::string line = fmt::format("{{\"step\": {}, \"steps\": {}", shares.step, shares.steps);
  for (const auto& [name, list] : kRankMeans) {
    line += fmt::format(", \"{}\": {}", name, list_of(shares.*list));
  }
  line += fmt::format(", \"memory_bytes\": {}", list_of(shares.memory_bytes));
  if (!shares.stages.empty()) {
    line += fmt::format(", \"stages\": [{}]", fmt::join(shares.stages, ", "));
  }
  file_.append(line + "}");
}

}  // namespace lockstep::monitor
