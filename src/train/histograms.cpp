// Counts histograms of weights and gradients in parallel.
#include "train/histograms.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "base/format.h"
#include "monitor/monitor.h"
#include "parallel/parallel_model.h"

namespace lockstep::train {
namespace {

constexpr int kMantissaBits = 2;  // mantissa bits that are part of the code
constexpr int kCodeShift = 23 - kMantissaBits;
constexpr int64_t kLowestCode = (127 - 40) << kMantissaBits;  // code of 2^-40
constexpr int64_t kHighestCode = (127 + 20)
                                 << kMantissaBits;  // code of 2^20, the first above the last bin
constexpr int64_t kBinsOfASign = kHighestCode - kLowestCode;  // bins per sign
constexpr int64_t kHistogramBins = 2 * kBinsOfASign + 1;
constexpr int64_t kCountedAtATime = 1 << 22;  // elements per chunk

/// Returns the smallest magnitude with this code.
double magnitude_of(int64_t code) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(code) << kCodeShift));
}

/// Returns the upper limit of each bin.
const std::vector<double>& bin_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> found;
    for (int64_t code = kHighestCode - 1; code >= kLowestCode; --code) {
      found.push_back(-magnitude_of(code));
    }
    for (int64_t code = kLowestCode; code <= kHighestCode; ++code) {
      found.push_back(magnitude_of(code));
    }
    return found;
  }();
  return limits;
}

/// Returns the names of all ranks, sorted and without duplicates.
std::vector<std::string> names_of_all(comm::Communicator& world, const std::string& lines) {
  std::set<std::string> names;
  for (const std::string& told : comm::gather_strings(world, lines)) {
    std::istringstream stream(told);
    for (std::string name; std::getline(stream, name);) {
      names.insert(std::move(name));
    }
  }
  return {names.begin(), names.end()};
}

at::Tensor owned_part(const parallel::StateSlice& slice) {
  return slice.data.narrow(0, slice.owned_begin, slice.owned_end - slice.owned_begin);
}

}  // namespace

BinnedCounts::BinnedCounts(int64_t rows)
    : sums_(at::zeros({rows, kHistogramBins + 2}, at::kDouble)),
      extremes_(at::full({rows, 2}, -std::numeric_limits<double>::infinity(), at::kDouble)) {}

void BinnedCounts::add(int64_t row, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  for (int64_t begin = 0; begin < values.numel(); begin += kCountedAtATime) {
    const at::Tensor part =
        values.narrow(0, begin, std::min(kCountedAtATime, values.numel() - begin)).to(at::kFloat);
    // The bit pattern of a float without its sign grows with its magnitude. Its upper bits are the
    // code, from which the bin follows.
    const at::Tensor code = part.abs().view(at::kInt).bitwise_right_shift(kCodeShift);
    const at::Tensor bin = code.clamp(kLowestCode - 1, kHighestCode - 1).sub(kLowestCode - 1);
    const at::Tensor index = at::where(part.lt(0), bin.neg(), bin).add(kBinsOfASign);
    const at::Tensor exact = part.to(at::kDouble);
    sums_[row]
        .narrow(0, 0, kHistogramBins)
        .add_(at::bincount(index, {}, kHistogramBins).to(at::kCPU));
    sums_[row][kHistogramBins].add_(exact.sum().cpu());
    sums_[row][kHistogramBins + 1].add_(exact.square().sum().cpu());
    extremes_[row][0].fill_(std::max(extremes_[row][0].item<double>(), exact.max().item<double>()));
    extremes_[row][1].fill_(
        std::max(extremes_[row][1].item<double>(), -exact.min().item<double>()));
  }
}

void BinnedCounts::reduce(comm::Communicator& communicator) {
  communicator.all_reduce(sums_).wait();
  communicator.all_reduce(extremes_, comm::Reduce::kMax).wait();
}

monitor::Histogram BinnedCounts::histogram(int64_t row) const {
  monitor::Histogram made;
  const auto* const numbers = sums_[row].const_data_ptr<double>();
  const auto* const extremes = extremes_[row].const_data_ptr<double>();
  int64_t first = 0, last = kHistogramBins;
  while (first < last && numbers[first] == 0) {
    ++first;
  }
  while (last > first && numbers[last - 1] == 0) {
    --last;
  }
  if (first == last) {
    return made;
  }
  made.max = extremes[0];
  made.min = -extremes[1];
  made.sum = numbers[kHistogramBins];
  made.sum_squares = numbers[kHistogramBins + 1];
  made.limits.assign(bin_limits().begin() + first, bin_limits().begin() + last);
  made.counts.assign(numbers + first, numbers + last);
  made.limits.back() = std::max(made.limits.back(), made.max);
  return made;
}

bool Histograms::is_due(int64_t step) const {
  const int64_t every = job_.config.monitor.histograms;
  return every > 0 && step % every == 0;
}

int64_t Histograms::row_of(const std::string& name) const {
  const auto found = std::ranges::lower_bound(names_, name);
  return found != names_.end() && *found == name ? found - names_.begin() : -1;
}

void Histograms::find_names() {
  if (!names_.empty()) {
    return;
  }
  std::string lines;
  job_.model->visit_gradients(
      [&](const parallel::StateSlice& slice) { lines += slice.name + "\n"; });
  names_ = names_of_all(rank_context_.communicator, lines);
}

void Histograms::count_gradients() {
  find_names();
  BinnedCounts counts(std::ssize(names_));
  job_.model->visit_gradients([&](const parallel::StateSlice& slice) {
    counts.add(row_of(slice.name), owned_part(slice));
  });
  counts.reduce(rank_context_.communicator);
  counted_.emplace_back("gradients", std::move(counts));
}

void Histograms::count_weights() {
  find_names();
  BinnedCounts counts(std::ssize(names_));
  job_.model->visit_state([&](const parallel::StateSlice& slice) {
    if (slice.file_group == "model" && row_of(slice.name) >= 0) {
      counts.add(row_of(slice.name), owned_part(slice));
    }
  });
  counts.reduce(rank_context_.communicator);
  counted_.emplace_back("weights", std::move(counts));
}

void Histograms::tell() {
  for (const auto& [kind, counts] : counted_) {
    for (size_t i = 0; job_.monitor != nullptr && i < names_.size(); ++i) {
      job_.monitor->histogram(
          fmt::format("{}/{}", kind, names_[i]), counts.histogram(static_cast<int64_t>(i)));
    }
  }
  counted_.clear();
}

}  // namespace lockstep::train
