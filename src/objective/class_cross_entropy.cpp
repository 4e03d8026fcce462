// Cross-entropy of single-label classification.
#include <algorithm>

#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

/// Its sums: losses, weights, number of correctly classified rows, number of rows.
class ClassCrossEntropy final : public Objective {
 public:
  explicit ClassCrossEntropy(ClassOptions options) : options_(std::move(options)) {}
  /// Requires the scores of all outputs, so that training accuracy comes from the same forward
  /// pass.
  Needs needs() const override { return Needs::kClassScores; }
  Counts counts(const nn::Targets& targets) const override {
    return weights_of(targets.tokens).sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    const auto [place, is_missing] = targets.first_targets();
    const Tensor classes = targets.tokens.flatten().index_select(0, place).masked_fill(
        is_missing, ops::kIgnoredTarget);
    const Tensor is_here = classes.ne(ops::kIgnoredTarget);
    const Tensor& logits = scores.log_likelihoods;
    const Tensor weights = weights_of(classes);
    const Tensor likelihoods = logits.to(at::kDouble).log_softmax(1);
    const Tensor own = likelihoods.gather(1, classes.clamp_min(0).unsqueeze(1)).squeeze(1);
    Tensor losses = weights * focal(own);
    if (const double share = options_.label_smoothing; share > 0) {
      const Tensor all = options_.weights.empty()
                             ? likelihoods
                             : likelihoods * at::tensor(options_.weights, likelihoods.options());
      losses = (1 - share) * losses + share * all.mean(1).neg() * is_here;
    }
    const Tensor is_right = logits.argmax(1).eq(classes).logical_and(is_here);
    return at::stack(
        {losses.sum(), weights.sum(), is_right.sum(at::kDouble), is_here.sum(at::kDouble)});
  }
  int64_t sums() const override { return 4; }
  std::vector<std::string> metrics() const override { return {"accuracy"}; }
  Report report(std::span<const double> sums) const override {
    return {sums[0] / std::max(sums[1], kLeast), {{"accuracy", sums[2] / std::max(sums[3], 1.0)}}};
  }

 private:
  static constexpr double kLeast = 1e-12;

  /// Returns the focal loss for given log p.
  Tensor focal(const Tensor& likelihoods) const {
    // Powers with an exponent below 1 have no finite derivative at 0.
    return options_.focal_gamma > 0
               ? -likelihoods * (1 - likelihoods.exp()).clamp_min(kLeast).pow(options_.focal_gamma)
               : -likelihoods;
  }
  /// Returns the weight of each class, float64 with the shape of `classes`; 0 for rows without a
  /// target.
  Tensor weights_of(const Tensor& classes) const {
    const Tensor is_target = classes.ne(ops::kIgnoredTarget);
    if (options_.weights.empty()) {
      return is_target.to(at::kDouble);
    }
    const Tensor weights = at::tensor(options_.weights, at::kDouble).to(classes.device());
    return weights.index({classes.clamp_min(0)}) * is_target;
  }

  ClassOptions options_;
};

}  // namespace

ObjectivePointer class_cross_entropy(ClassOptions options) {
  return std::make_shared<ClassCrossEntropy>(std::move(options));
}

}  // namespace lockstep::objective
