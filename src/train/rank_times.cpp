// Collects step times per rank and detects slow ranks.
#include "train/rank_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

constexpr size_t kRanksAStep = 16;    // a report covers at least one step per 16 ranks
constexpr int64_t kJudgedSteps = 50;  // number of steps over which a rank must be slow
constexpr size_t kMostKept = 128;     // number of previous checks kept
constexpr size_t kSaving = 3;         // index in monitor::kRankMeans
static_assert(monitor::kRankMeans.at(kSaving).values == &monitor::RankShares::checkpoint_s);
constexpr double kGrown = 1.02;  // memory growth that causes another event

double total_of(const std::array<double, parallel::kMemoryKinds>& memory) {
  return std::accumulate(memory.begin(), memory.end(), 0.0);
}

}  // namespace

RankTimes::RankTimes(const parallel::ParallelGroups& axes) {
  const auto& mesh = axes.mesh();
  for (int rank = 0; rank < mesh.ranks() && mesh.pipeline > 1; ++rank) {
    stages_.push_back(mesh.coordinate(rank).pipeline);
  }
}

void RankTimes::end_step(
    double seconds,
    double for_data,
    double for_ranks,
    double moving,
    const parallel::MemoryByKind& fullest) {
  last_ = {seconds, for_data, for_ranks, 0, moving};
  std::ranges::copy(parallel::values_of(fullest), last_.begin() + kTimes);
}

void RankTimes::end_save(double seconds) {
  last_.at(kSaving) += seconds;
}

void RankTimes::take(int rank, int ranks, int64_t step, std::span<const double, kNumbers> numbers) {
  if (numbers[0] <= 0) {
    return;  // the rank has not completed a step yet
  }
  const auto place = static_cast<size_t>(rank), count = static_cast<size_t>(ranks);
  for (size_t i = 0; i < monitor::kRankMeans.size(); ++i) {
    std::vector<double>& sums = sums_.*monitor::kRankMeans.at(i).values;
    sums.resize(count);
    sums[place] += numbers[i];
  }
  sums_.memory_bytes.resize(count);
  sums_.stages = stages_;
  memory_.resize(count);
  std::array<double, parallel::kMemoryKinds> memory{};
  std::ranges::copy(numbers.subspan<kTimes>(), memory.begin());
  sums_.memory_bytes[place] = std::max(sums_.memory_bytes[place], total_of(memory));
  if (total_of(memory) >= total_of(memory_[place])) {
    memory_[place] = memory;
  }
  if (rank == 0) {
    sums_.step = step;
    ++sums_.steps;
  }
}

void RankTimes::tell(monitor::Monitor& monitor) {
  if (sums_.steps > 0 && static_cast<size_t>(sums_.steps) * kRanksAStep >= sums_.step_s.size()) {
    tell_sums(monitor);
  }
}

void RankTimes::end_run(comm::Communicator& communicator, int64_t step, monitor::Monitor* monitor) {
  const at::Tensor own = at::tensor(last_, at::kDouble);
  const at::Tensor all = at::empty({communicator.size(), kNumbers}, at::kDouble);
  communicator.all_gather(all, own).wait();
  if (monitor == nullptr) {
    return;
  }
  for (int rank = 0; rank < communicator.size(); ++rank) {
    take(
        rank,
        communicator.size(),
        step,
        std::span<const double, kNumbers>(all[rank].const_data_ptr<double>(), kNumbers));
  }
  if (sums_.steps > 0) {
    tell_sums(*monitor);
  }
}

void RankTimes::judge(monitor::Monitor& monitor) {
  monitor::merge_shares(judged_, sums_);
  if (judged_.steps < kJudgedSteps) {
    return;
  }
  const auto slow = monitor::slow_rank(judged_, monitor::usual_compute(before_));
  if (before_.size() ==
      kMostKept) {  // drop every other check, so that the rest covers the whole run
    for (size_t i = 0; i < kMostKept / 2; ++i) {
      before_[i] = std::move(before_[2 * i]);
    }
    before_.resize(kMostKept / 2);
  }
  before_.push_back(monitor::compute_of(judged_));
  judged_ = {};
  const auto rank = slow ? std::optional(slow->rank) : std::nullopt;
  if (rank != std::exchange(slow_, rank)) {
    monitor.event(
        "slow rank",
        slow
            ? nlohmann::
                  ordered_json{{"rank", slow->rank}, {"factor", slow->factor}, {"by", monitor::name_of(slow->by)}}
            : nlohmann::ordered_json{{"rank", nullptr}});
  }
}

void RankTimes::tell_sums(monitor::Monitor& monitor) {
  for (const auto& [name, list] : monitor::kRankMeans) {
    for (double& sum : sums_.*list) {
      sum /= static_cast<double>(sums_.steps);
    }
  }
  monitor.ranks(sums_);
  judge(monitor);
  sums_ = {};
  const auto fullest = std::ranges::max_element(memory_, {}, total_of);
  const double bytes = total_of(*fullest);
  if (bytes > told_bytes_ * kGrown) {
    told_bytes_ = bytes;
    nlohmann::ordered_json kinds;
    const auto names = parallel::memory_kind_names();
    for (size_t i = 0; i < names.size(); ++i) {
      kinds[std::string(names.at(i))] = (*fullest).at(i);
    }
    monitor.event(
        "memory", {{"rank", fullest - memory_.begin()}, {"bytes", bytes}, {"kinds", kinds}});
  }
}

}  // namespace lockstep::train
