// Implements the unlearning metrics of open-unlearning and TOFU.
#include "metrics/unlearning.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include <zlib.h>

namespace lockstep::metrics {
namespace {

constexpr double kTiny = 1e-10;  // keeps quotients finite, as in open-unlearning

double mean_of(std::span<const double> values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double geometric_mean(std::span<const double> losses) {
  return std::exp(-mean_of(losses));
}

/// Returns the largest distance between the two distribution functions times lcm(n, m), an integer.
int64_t scaled_distance(const std::vector<double>& a, const std::vector<double>& b, int64_t lcm) {
  const auto n = static_cast<int64_t>(a.size()), m = static_cast<int64_t>(b.size());
  int64_t i = 0, j = 0, largest = 0;
  while (i < n && j < m) {
    const double at = std::min(a[static_cast<size_t>(i)], b[static_cast<size_t>(j)]);
    while (i < n && a[static_cast<size_t>(i)] <= at) {
      ++i;
    }
    while (j < m && b[static_cast<size_t>(j)] <= at) {
      ++j;
    }
    largest = std::max(largest, std::abs(i * (lcm / n) - j * (lcm / m)));
  }
  return largest;
}

}  // namespace

double probability(double loss) {
  return std::exp(-loss);
}

double probability_among(double correct_loss, std::span<const double> wrong_losses) {
  double wrong = 0;
  for (const double loss : wrong_losses) {
    wrong += probability(loss);
  }
  const double correct = probability(correct_loss);
  return correct / (correct + wrong + kTiny);
}

double truth_ratio(double correct_loss, std::span<const double> wrong_losses) {
  return geometric_mean(wrong_losses) / (probability(correct_loss) + kTiny);
}

double truth_share(double correct_loss, std::span<const double> wrong_losses) {
  const double correct = probability(correct_loss);
  return correct / (correct + geometric_mean(wrong_losses) + kTiny);
}

double closer_to_one_is_better(std::span<const double> truth_ratios) {
  std::vector<double> each;
  for (const double ratio : truth_ratios) {
    each.push_back(std::min(ratio, 1 / (ratio + kTiny)));
  }
  return mean_of(each);
}

double truth_is_better(std::span<const double> truth_ratios) {
  std::vector<double> each;
  for (const double ratio : truth_ratios) {
    each.push_back(std::max(0.0, 1 - ratio));
  }
  return mean_of(each);
}

KolmogorovSmirnov kolmogorov_smirnov(std::vector<double> a, std::vector<double> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  const auto n = static_cast<int64_t>(a.size()), m = static_cast<int64_t>(b.size());
  if (n == 0 || m == 0) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  const int64_t lcm = std::lcm(n, m), distance = scaled_distance(a, b, lcm);
  const double statistic = static_cast<double>(distance) / static_cast<double>(lcm);
  if (distance == 0) {
    return {statistic, 1};
  }
  // Counts interleavings of the two samples. share[y] is the fraction of orders, of x values of one
  // sample and y of the other, in which the distance reaches `distance` at some point. The
  // recurrence never subtracts large numbers.
  std::vector<double> share(static_cast<size_t>(m) + 1, 0);
  for (int64_t x = 0; x <= n; ++x) {
    for (int64_t y = 0; y <= m; ++y) {
      double& here = share[static_cast<size_t>(y)];
      if (std::abs(x * (lcm / n) - y * (lcm / m)) >= distance) {
        here = 1;
      } else if (x + y > 0) {
        const double before = y > 0 ? share[static_cast<size_t>(y) - 1] : 0;
        here = (static_cast<double>(x) * here + static_cast<double>(y) * before) /
               static_cast<double>(x + y);
      }
    }
  }
  return {statistic, share.back()};
}

double harmonic_mean(std::span<const double> values) {
  double inverse = 0;
  for (const double value : values) {
    if (value == 0) {
      return 0;
    }
    inverse += 1 / value;
  }
  return values.empty() ? 0 : static_cast<double>(values.size()) / inverse;
}

double exact_memorization(std::span<const bool> likeliest) {
  if (likeliest.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(std::ranges::count(likeliest, true)) /
         static_cast<double>(likeliest.size());
}

double extraction_strength(std::span<const bool> likeliest, LeastExtraction least) {
  if (likeliest.empty()) {
    return 0;
  }
  size_t first = likeliest.size();
  while (first > 0 && likeliest[first - 1]) {
    --first;
  }
  if (least == LeastExtraction::kOneToken) {
    first = std::min(first, likeliest.size() - 1);
  }
  return 1 - static_cast<double>(first) / static_cast<double>(likeliest.size());
}

double min_k(std::vector<double> log_likelihoods, double k) {
  if (log_likelihoods.empty()) {
    return 0;
  }
  std::ranges::sort(log_likelihoods);
  const auto share = static_cast<size_t>(k * static_cast<double>(log_likelihoods.size()));
  return -mean_of(std::span(log_likelihoods).first(std::max<size_t>(1, share)));
}

size_t compressed_length(std::string_view text) {
  constexpr int kLevel = 6;
  uLongf length = ::compressBound(text.size());
  std::vector<Bytef> bytes(length);
  ::compress2(
      bytes.data(),
      &length,
      reinterpret_cast<const Bytef*>(text.data()),  // NOLINT: zlib's type of bytes
      text.size(),
      kLevel);
  return length;
}

double privacy_leakage(double auc, double reference_auc) {
  return ((1 - auc) - (1 - reference_auc)) / ((1 - reference_auc) + kTiny) * 100;
}

}  // namespace lockstep::metrics
