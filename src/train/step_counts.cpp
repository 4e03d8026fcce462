// Encodes and reduces the counts that ranks exchange in each step.
#include "train/step_counts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

namespace lockstep::train {
namespace {

// Layout of a row: seven counts, rank 0's commands, the times of RankTimes, the divisors of the
// loss.
constexpr int64_t kShapes = 6, kActs = 7, kTimes = kActs + Acts::kNumbers,
                  kDivisors = kTimes + RankTimes::kNumbers;

}  // namespace

at::Tensor numbers_of(const StepCounts& own, const RankTimes& times) {
  return at::cat(
      {at::tensor(
           {own.tokens, own.stop, own.peak_memory, own.save, own.failed, own.measure, own.shapes},
           at::kDouble),
       at::tensor(own.acts.numbers(), at::kDouble),
       at::tensor(times.numbers(), at::kDouble),
       at::tensor(own.step.values(), at::kDouble)});
}

StepCounts sum_of_ranks(
    const at::Tensor& all, const at::Tensor& own, const parallel::ParallelGroups& axes) {
  const auto* first = all.const_data_ptr<double>();
  StepCounts counts;
  counts.acts =
      Acts::from_numbers(std::span<const double, Acts::kNumbers>(first + kActs, Acts::kNumbers));
  counts.stop = counts.acts.stop ? 1 : 0;
  counts.save = counts.acts.save ? 1 : 0;
  counts.shapes = static_cast<int64_t>(own.const_data_ptr<double>()[kShapes]);
  const auto divisors_in = [&](const double* row) {
    return std::vector<double>(row + kDivisors, row + own.numel());
  };
  int64_t ranks_with_targets = 0;
  const mesh::Mesh& mesh = axes.mesh();
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const double* row = first + rank * own.numel();
    // Ranks with the same data coordinate read the same batch, so only the first one is counted.
    const mesh::Coordinate at = mesh.coordinate(rank);
    if (at == mesh::Coordinate{.data = at.data}) {
      counts.tokens += static_cast<int64_t>(row[0]);
      const std::vector<double> divisors = divisors_in(row);
      ranks_with_targets += divisors.front() > 0 ? 1 : 0;
      counts.step += objective::Counts(divisors);
    }
    counts.stop += static_cast<int64_t>(row[1]);
    counts.peak_memory = std::max(counts.peak_memory, static_cast<int64_t>(row[2]));
    counts.save += static_cast<int64_t>(row[3]);
    counts.failed += static_cast<int64_t>(row[4]);
    counts.measure += static_cast<int64_t>(row[5]);
    counts.alike = counts.alike && static_cast<int64_t>(row[kShapes]) == counts.shapes;
  }
  std::vector<double> shared = divisors_in(own.const_data_ptr<double>());
  for (double& divisor : shared) {
    divisor *= static_cast<double>(ranks_with_targets);
  }
  counts.shared = objective::Counts(std::move(shared));
  return counts;
}

std::span<const double, RankTimes::kNumbers> times_in(const at::Tensor& told) {
  return std::span<const double, RankTimes::kNumbers>(
      told.const_data_ptr<double>() + kTimes, RankTimes::kNumbers);
}

}  // namespace lockstep::train
