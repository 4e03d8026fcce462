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
  Needs needs() const override {
    return options_.label_smoothing > 0 ? Needs::kClassScores : Needs::kTokenScores;
  }
  Counts counts(const nn::Targets& targets) const override {
    return weights_of(targets.tokens).sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    if (needs() == Needs::kClassScores) {
      const auto [place, is_missing] = targets.first_targets();
      const Tensor classes = targets.tokens.flatten().index_select(0, place);
      return measure_smoothed(
          scores.log_likelihoods, classes.masked_fill(is_missing, ops::kIgnoredTarget));
    }
    const Tensor weights = weights_of(targets.tokens);
    const Tensor likelihoods = scores.log_likelihoods.to(at::kDouble);
    return at::stack(
        {(weights * focal(likelihoods)).sum(),
         weights.sum(),
         (weights * scores.likeliest.to(at::kDouble)).sum()});
  }
  std::vector<std::string> metrics() const override { return {"weighted_accuracy"}; }

 private:
  /// Of log p.
  Tensor focal(const Tensor& likelihoods) const {
    constexpr double kLeast = 1e-12;  // a power below one has no slope at 0
    return options_.focal_gamma > 0
               ? -likelihoods * (1 - likelihoods.exp()).clamp_min(kLeast).pow(options_.focal_gamma)
               : -likelihoods;
  }
  /// Of logits [B, K] and classes [B], kIgnoredTarget where none is here.
  Tensor measure_smoothed(const Tensor& logits, const Tensor& classes) const {
    const Tensor rows = weights_of(classes);
    const Tensor likelihoods = logits.to(at::kDouble).log_softmax(1);
    const Tensor own = likelihoods.gather(1, classes.clamp_min(0).unsqueeze(1)).squeeze(1);
    const double share = options_.label_smoothing;
    const Tensor all = options_.weights.empty()
                           ? likelihoods
                           : likelihoods * at::tensor(options_.weights, likelihoods.options());
    const Tensor spread = all.mean(1).neg() * classes.ne(ops::kIgnoredTarget);
    const Tensor losses = (1 - share) * rows * focal(own) + share * spread;
    return at::stack(
        {losses.sum(), rows.sum(), (rows * logits.argmax(1).eq(classes).to(at::kDouble)).sum()});
  }
  /// float64, like the classes: 0 where nothing is predicted.
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
