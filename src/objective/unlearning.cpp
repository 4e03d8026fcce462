// Unlearning objectives.
#include <cmath>

#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "objective/rows.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

/// gamma * (mean loss of the forget set) + alpha * (mean loss of the retain set: -log p per token,
/// or the divergence).
class Unlearning : public Objective {
 public:
  explicit Unlearning(const UnlearningOptions& options) : options_(options) {}
  Counts counts(const nn::Targets& targets) const final {
    const Counts tokens({forgotten_count(targets), retained_count(targets)});
    if (options_.means == Means::kOfStep) {
      return tokens;
    }
    const auto any = [&](size_t term) { return tokens.values()[term] > 0 ? 1.0 : 0.0; };
    return Counts({any(0), any(1)});
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const final {
    const Tensor values = scores.log_likelihoods.to(at::kDouble);
    const bool are_tokens = values.dim() == 2;
    const auto rows_of = [&](nn::RowKind kind) {
      const Tensor rows = of_kind(targets, kind);
      return are_tokens ? targets.to_tokens(rows) : rows;
    };
    const bool by_step = options_.means == Means::kOfStep;
    const Tensor forget = rows_of(nn::RowKind::kForget);
    const double forgets = by_step ? 1 : divided(forgotten_count(targets)),
                 keeps = by_step ? 1 : divided(retained_count(targets));
    const Tensor forgotten = (forget * losses(values, targets)).sum() * forgets;
    const Tensor retain = rows_of(nn::RowKind::kRetain);
    const Tensor kept = retain * kept_losses(values, targets);
    Tensor weights = kept_weights(targets);
    weights = are_tokens ? targets.to_tokens(weights) : weights;
    const Tensor are_here = targets.tokens.ne(ops::kIgnoredTarget);
    const Tensor count = forget * (are_tokens ? are_here : counted(targets));
    const Tensor kept_count = retain * (are_tokens ? are_here : kept_counted(targets));
    const Tensor loss = options_.gamma * forgotten + step.share(1) * keeps * (weights * kept).sum();
    return at::stack(
        {loss,
         count.sum() * forgets,
         forgotten.detach(),
         kept.detach().sum() * keeps,
         kept_count.sum() * keeps,
         (weights * kept_count).sum() * keeps});
  }
  std::vector<std::string> metrics() const override { return {"forget_loss", "retain_loss"}; }
  int64_t sums() const final { return 6; }
  /// The two losses are separate means. The loss of a kind without rows is omitted.
  Report report(std::span<const double> sums) const override {
    const double forgets = divided(sums[1]), keeps = divided(sums[4]);
    const double forget = sums[2] * forgets, retain = sums[3] * keeps, weight = sums[5] * keeps;
    Report report{options_.gamma * forget + weight * (retain - options_.retain_bound), {}};
    report.metrics.emplace_back("forget_loss", forget);
    if (sums[4] > 0) {
      report.metrics.emplace_back("retain_loss", retain);
    }
    return report;
  }

 protected:
  /// Returns the losses of the rows [B] or tokens [B, T] of the forget set.
  virtual Tensor losses(const Tensor& values, const nn::Targets& targets) const = 0;
  /// Returns the losses for the retain set.
  virtual Tensor kept_losses(const Tensor& values, const nn::Targets& /*targets*/) const {
    return -values;
  }
  /// Return the divisors of each row's sum, [B], in the forget set and in the retain set.
  virtual Tensor counted(const nn::Targets& targets) const { return targets.counts; }
  virtual Tensor kept_counted(const nn::Targets& targets) const { return targets.counts; }
  /// Returns alpha, [B] or broadcastable to it.
  virtual Tensor kept_weights(const nn::Targets& targets) const {
    return at::full_like(targets.counts, options_.alpha);
  }
  const UnlearningOptions& options() const { return options_; }
  static double divided(double count) { return count > 0 ? 1 / count : 1; }

 private:
  double forgotten_count(const nn::Targets& targets) const {
    return (of_kind(targets, nn::RowKind::kForget) * counted(targets)).sum().item<double>();
  }
  double retained_count(const nn::Targets& targets) const {
    return (of_kind(targets, nn::RowKind::kRetain) * kept_counted(targets)).sum().item<double>();
  }
  UnlearningOptions options_;
};

/// Objectives that are linear in the scores of rows: log p or, with distributions, the negative
/// cross-entropy.
class GradientDifference : public Unlearning {
 public:
  GradientDifference(const UnlearningOptions& options, double sign)
      : Unlearning(options),
        sign_(sign) {}
  Needs needs() const override { return Needs::kRowScores; }

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& /*targets*/) const override {
    return sign_ * rows;
  }

 private:
  double sign_;
};

class LevelDistribution final : public GradientDifference {
 public:
  explicit LevelDistribution(const UnlearningOptions& options) : GradientDifference(options, -1) {}
  std::vector<std::string> metrics() const override {
    return {"forget_loss", "retain_loss", "retain_preference"};
  }
  Report report(std::span<const double> sums) const override {
    Report report = Unlearning::report(sums);
    report.metrics.emplace_back("retain_preference", sums[5] * divided(sums[4]));
    return report;
  }

 protected:
  Tensor kept_weights(const nn::Targets& targets) const override {
    return needed(targets.weights, "weights");
  }
};

/// Objectives with a loss per token.
class TokenForgetting : public Unlearning {
 public:
  using Unlearning::Unlearning;
  Needs needs() const final { return Needs::kTokenScores; }
};

class WeightedAscent final : public TokenForgetting {
 public:
  using TokenForgetting::TokenForgetting;

 protected:
  Tensor losses(const Tensor& tokens, const nn::Targets& /*targets*/) const override {
    const Tensor likelihood = tokens.detach();
    const Tensor weight = (options().beta * likelihood).exp();
    if (options().saturation == 0) {
      return weight * tokens;
    }
    return weight * likelihood.expm1().neg().pow(options().saturation) * tokens;
  }
};

/// Objectives with a loss per row.
class RowForgetting : public Unlearning {
 public:
  using Unlearning::Unlearning;
  Needs needs() const final { return Needs::kRowScores; }

 protected:
  Tensor counted(const nn::Targets& targets) const final { return at::ones_like(targets.counts); }
  /// Returns -2 / beta log s(beta x).
  Tensor saturating(const Tensor& x) const {
    return -2 / options().beta * at::log_sigmoid(options().beta * x);
  }
};

/// Mean distances for both kinds of rows; linear in the scores.
class SteeredStates final : public RowForgetting {
 public:
  using RowForgetting::RowForgetting;

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& targets) const override {
    const Tensor inverse = targets.counts.clamp_min(1).reciprocal();
    if (options().means == Means::kOfStep) {
      return -rows * inverse;
    }
    Tensor mean = at::zeros_like(inverse);
    for (const nn::RowKind kind : {nn::RowKind::kForget, nn::RowKind::kRetain}) {
      const Tensor are = of_kind(targets, kind);
      mean = mean + are * ((are * inverse).sum() / are.sum().clamp_min(1));
    }
    return -rows * mean;
  }
  Tensor kept_losses(const Tensor& rows, const nn::Targets& targets) const override {
    return losses(rows, targets);
  }
  Tensor kept_counted(const nn::Targets& targets) const override {
    return at::ones_like(targets.counts);
  }
};

class NegativePreference final : public RowForgetting {
 public:
  using RowForgetting::RowForgetting;

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& targets) const override {
    return saturating(needed(targets.reference, "reference scores") - rows);
  }
};

class AlternatePreference final : public RowForgetting {
 public:
  using RowForgetting::RowForgetting;

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& targets) const override {
    const Tensor gains = rows - needed(targets.reference, "reference scores");
    const Tensor alternates = gains * of_kind(targets, nn::RowKind::kChosen);
    const Tensor& groups = needed(targets.groups, "groups");
    return saturating(
        at::zeros_like(rows).index_add(0, groups, alternates).index({groups}) - gains);
  }
};

class SimpleNegativePreference final : public RowForgetting {
 public:
  using RowForgetting::RowForgetting;

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& targets) const override {
    return saturating(-rows / targets.counts.clamp_min(1) - options().delta);
  }
};

template <class Method>
ObjectivePointer make(const UnlearningOptions& options) {
  return std::make_shared<Method>(options);
}

}  // namespace

ObjectivePointer gradient_ascent(Means means) {
  return gradient_difference({.alpha = 0, .means = means});
}

ObjectivePointer gradient_difference(const UnlearningOptions& options) {
  return std::make_shared<GradientDifference>(options, 1.0);
}

ObjectivePointer lowered_distribution(const UnlearningOptions& options) {
  return std::make_shared<GradientDifference>(options, -1.0);
}

ObjectivePointer level_distribution(const UnlearningOptions& options) {
  return make<LevelDistribution>(options);
}

ObjectivePointer steered_states(const UnlearningOptions& options) {
  return make<SteeredStates>(options);
}

ObjectivePointer weighted_ascent(const UnlearningOptions& options) {
  return make<WeightedAscent>(options);
}

ObjectivePointer others_instead(const UnlearningOptions& options) {
  return std::make_shared<GradientDifference>(options, -1.0);
}

ObjectivePointer negative_preference(const UnlearningOptions& options) {
  return make<NegativePreference>(options);
}

ObjectivePointer alternate_preference(const UnlearningOptions& options) {
  return make<AlternatePreference>(options);
}

ObjectivePointer simple_negative_preference(const UnlearningOptions& options) {
  return make<SimpleNegativePreference>(options);
}

}  // namespace lockstep::objective
