#include <algorithm>

#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

class ClassCrossEntropy final : public Objective {
 public:
  explicit ClassCrossEntropy(ClassOptions options) : options_(std::move(options)) {}
  /// Of tokens and not of rows: a rank that has a part of a row does not know its class.
  Needs needs() const override { return Needs::kTokenScores; }
  Counts counts(const nn::Targets& targets) const override {
    return weights_of(targets).sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    constexpr double kLeast = 1e-12;  // a power below one has no slope at 0
    const Tensor weights = weights_of(targets);
    const Tensor likelihoods = scores.log_likelihoods.to(at::kDouble);
    Tensor losses = -weights * likelihoods;
    if (options_.focal_gamma > 0) {
      losses = losses * (1 - likelihoods.exp()).clamp_min(kLeast).pow(options_.focal_gamma);
    }
    return at::stack(
        {losses.sum(), weights.sum(), (weights * scores.likeliest.to(at::kDouble)).sum()});
  }
  std::vector<std::string> metrics() const override { return {"weighted_accuracy"}; }

 private:
  /// float64, like the targets' tokens: 0 where nothing is predicted.
  Tensor weights_of(const nn::Targets& targets) const {
    const Tensor is_target = targets.tokens.ne(ops::kIgnoredTarget);
    if (options_.weights.empty()) {
      return is_target.to(at::kDouble);
    }
    const Tensor weights = at::tensor(options_.weights, at::kDouble).to(targets.tokens.device());
    return weights.index({targets.tokens.clamp_min(0)}) * is_target;
  }

  ClassOptions options_;
};

}  // namespace

ObjectivePointer class_cross_entropy(ClassOptions options) {
  return std::make_shared<ClassCrossEntropy>(std::move(options));
}

}  // namespace lockstep::objective
