// Cross-entropy over tokens.
#include <cmath>

#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

class CrossEntropy final : public Objective {
 public:
  explicit CrossEntropy(double label_smoothing) : label_smoothing_(label_smoothing) {}
  double label_smoothing() const override { return label_smoothing_; }
  Needs needs() const override { return Needs::kNothing; }
  Counts counts(const nn::Targets& targets) const override {
    return targets.counts.sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    return at::stack(
        {scores.log_likelihoods.sum(at::kDouble).neg(),
         targets.tokens.ne(ops::kIgnoredTarget).sum(at::kDouble),
         scores.likeliest.sum(at::kDouble)});
  }
  std::vector<std::string> metrics() const override { return {"token_accuracy"}; }
  Report report(std::span<const double> sums) const override {
    Report report = Objective::report(sums);
    report.metrics.emplace(report.metrics.begin(), "perplexity", std::exp(report.loss));
    return report;
  }

 private:
  double label_smoothing_;
};

}  // namespace

ObjectivePointer cross_entropy(double label_smoothing) {
  return std::make_shared<CrossEntropy>(label_smoothing);
}

}  // namespace lockstep::objective
