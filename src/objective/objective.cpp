// Default implementations for objectives: weights of the scores, and reports.
#include "objective/objective.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

namespace lockstep::objective {

Counts& Counts::operator+=(const Counts& other) {
  values_.resize(std::max(values_.size(), other.values_.size()));
  for (size_t term = 0; term < other.values_.size(); ++term) {
    values_[term] += other.values_[term];
  }
  return *this;
}

Weighing Objective::weigh(
    const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const {
  if (!at::GradMode::is_enabled()) {
    return {measure(scores, targets, step), {}};
  }
  const Tensor leaf = scores.log_likelihoods.detach().requires_grad_(true);
  const Tensor sums = measure({leaf, scores.likeliest}, targets, step);
  const Tensor gradient = torch::autograd::grad({sums[0]}, {leaf}).front();
  return {sums.detach(), gradient.neg()};
}

Report Objective::report(std::span<const double> sums) const {
  const double count = sums[1] > 0 ? sums[1] : 1;
  Report report{sums[0] / count, {}};
  const std::vector<std::string> names = metrics();
  for (size_t i = 0; i < names.size(); ++i) {
    report.metrics.emplace_back(names[i], sums[i + 2] / count);
  }
  return report;
}

}  // namespace lockstep::objective
