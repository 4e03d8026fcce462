#include "train/rank_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

constexpr size_t kRanksAStep = 16;  // whose numbers a line may have for each step that it tells of
constexpr int64_t kJudgedSteps = 50;  // over which a rank has to be slow
constexpr double kGrown = 1.02;       // memory that is worth another event

double total_of(const std::array<double, parallel::kMemoryKinds>& memory) {
  return std::accumulate(memory.begin(), memory.end(), 0.0);
}

}  // namespace

void RankTimes::end_step(
    double seconds, double for_data, double for_ranks, const parallel::MemoryByKind& fullest) {
  last_[0] = seconds;
  last_[1] = for_data;
  last_[2] = for_ranks;
  std::ranges::copy(parallel::values_of(fullest), last_.begin() + 3);
}

void RankTimes::take(int rank, int ranks, int64_t step, std::span<const double, kNumbers> numbers) {
  if (numbers[0] <= 0) {
    return;  // it has ended no step yet
  }
  const auto place = static_cast<size_t>(rank), count = static_cast<size_t>(ranks);
  for (std::vector<double>* const each :
       {&sums_.step_s, &sums_.data_wait_s, &sums_.communication_wait_s, &sums_.memory_bytes}) {
    each->resize(count);
  }
  memory_.resize(count);
  sums_.step_s[place] += numbers[0];
  sums_.data_wait_s[place] += numbers[1];
  sums_.communication_wait_s[place] += numbers[2];
  std::array<double, parallel::kMemoryKinds> memory{};
  std::ranges::copy(numbers.subspan<3>(), memory.begin());
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
  const auto slow = monitor::slow_rank(judged_);
  judged_ = {};
  const auto rank = slow ? std::optional(slow->rank) : std::nullopt;
  if (rank != std::exchange(slow_, rank)) {
    monitor.event(
        "slow rank",
        slow
            ? nlohmann::
                  ordered_json{{"rank", slow->rank}, {"factor", slow->factor}, {"by", slow->by_data ? "data" : "own work"}}
            : nlohmann::ordered_json{{"rank", nullptr}});
  }
}

void RankTimes::tell_sums(monitor::Monitor& monitor) {
  for (std::vector<double>* const each :
       {&sums_.step_s, &sums_.data_wait_s, &sums_.communication_wait_s}) {
    for (double& sum : *each) {
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
