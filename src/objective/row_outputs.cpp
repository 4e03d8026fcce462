// Losses of multi-label classification and regression.
#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "objective/rows.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

/// Mean of the losses of single outputs.
class OutputLoss : public Objective {
 public:
  Needs needs() const override { return Needs::kClassScores; }
  Counts counts(const nn::Targets& targets) const override {
    const auto outputs = static_cast<double>(needed(targets.outputs, "outputs").size(1));
    return outputs * targets.counts.sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    const Tensor wanted = needed(targets.outputs, "outputs").to(at::kDouble);
    const Tensor is_here =
        targets.first_targets().second.logical_not().unsqueeze(1).to(at::kDouble);
    const Tensor losses = losses_of(scores.log_likelihoods.to(at::kDouble), wanted);
    return at::stack(
        {(losses * is_here).sum(), is_here.sum() * static_cast<double>(wanted.size(1))});
  }

 private:
  /// Returns the losses, float64 [B, K], from logits and targets.
  virtual Tensor losses_of(const Tensor& logits, const Tensor& wanted) const = 0;
};

class LabelCrossEntropy final : public OutputLoss {
 public:
  explicit LabelCrossEntropy(ClassOptions options) : options_(std::move(options)) {
    if (options_.label_smoothing > 0) {
      throw Error(ErrorKind::kInternal, "multi-label targets do not support label smoothing");
    }
  }

 private:
  Tensor losses_of(const Tensor& logits, const Tensor& wanted) const override {
    const Tensor has = at::log_sigmoid(logits), has_not = at::log_sigmoid(-logits);
    const Tensor weighted =
        options_.weights.empty()
            ? wanted
            : wanted * at::tensor(options_.weights, at::kDouble).to(wanted.device());
    if (options_.focal_gamma == 0) {
      return -(weighted * has + (1 - wanted) * has_not);
    }
    // (1 - p)^gamma, computed in log space, where it is differentiable for all p.
    const double gamma = options_.focal_gamma;
    return -(
        weighted * has * (gamma * has_not).exp() + (1 - wanted) * has_not * (gamma * has).exp());
  }

  ClassOptions options_;
};

class SquaredError final : public OutputLoss {
  Tensor losses_of(const Tensor& logits, const Tensor& wanted) const override {
    return (logits - wanted).square();
  }
};

}  // namespace

ObjectivePointer label_cross_entropy(ClassOptions options) {
  return std::make_shared<LabelCrossEntropy>(std::move(options));
}

ObjectivePointer squared_error() {
  return std::make_shared<SquaredError>();
}

}  // namespace lockstep::objective
